package replica

import (
	"testing"
	"testing/synctest"

	"github.com/tube-mq/tube/internal/vfs"
)

// A leader's machine is set back to an image of a moment ago and is there again before
// anybody has missed it. Who lacks the same as the image must not be elected by it.
func TestAnImageOfTheLeaderElectsNobodyWhoLacksTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 10)
		c.agree(tm, 10)
		c.eventually("node 3 leads", func() bool {
			for _, g := range tm.groups {
				g.Transfer(3)
			}
			return tm.groups[3].Status().Leading
		})
		c.write(tm, 1)
		c.agree(tm, 11)
		c.isolate(2, true)
		image := c.disks[3].CrashCopy(1, vfs.CrashKeep)
		c.write(tm, 10, 2) // the first and the third have them
		c.stop(3)
		c.disks[3] = image
		c.start(3)
		c.isolate(2, false)
		tm.groups[2].Do(func() { // the one who lacks the same is the first to stand
			if err := tm.groups[2].core.campaign(); err != nil {
				t.Error(err)
			}
		})
		c.write(tm, 5)
		c.agree(tm, 26)
	})
}
