// Package tidy holds the rules of the tree as tests: who may import whom, what
// pure packages may not touch, that every package says what it is for, and that
// every Kafka API which is advertised has its file and its test. It has no code.
package tidy
