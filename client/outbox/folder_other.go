//go:build !unix

package outbox

import (
	"os"
	"path/filepath"
)

// lockFolder does not lock here: it is for the caller to see that one process at a time
// has a spool open.
func lockFolder(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
}

// syncFolder: a folder cannot be synced here.
func syncFolder(string) error { return nil }
