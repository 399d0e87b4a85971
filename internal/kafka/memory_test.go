package kafka

import "runtime"

// memoryInUse is what the heap and the stacks hold after a collection.
func memoryInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first lets go of pools, shrinks stacks
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
