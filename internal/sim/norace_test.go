//go:build !race

package sim

// fixedSeeds run in every test, from 1 on, and someSeeds random ones.
const fixedSeeds, someSeeds = 24, 3
