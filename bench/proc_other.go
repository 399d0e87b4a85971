//go:build !linux

package bench

import (
	"os/exec"
	"time"
)

// Figures of processes are read from /proc, which only Linux has; elsewhere they are zero.

func cpuOf(int) time.Duration     { return 0 }
func rssOf(int) (now, peak int64) { return 0, 0 }
func resetPeak(int)               {}
func dieWithParent(*exec.Cmd)     {}
func syncDisks()                  {}
func shortSleep(d time.Duration)  { time.Sleep(d) }
