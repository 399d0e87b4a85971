//go:build race

package sim

// Under the race detector, which finds nothing in one goroutine, fewer seeds run.
const fixedSeeds, someSeeds = 4, 1
