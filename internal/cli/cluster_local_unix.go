//go:build unix

package cli

import (
	"os/exec"
	"syscall"
)

// apart keeps a terminal's Ctrl-C from a node: it is told to stop, once, by the
// command that started it.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
