package wal

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// image is the disk as a crash at some step leaves it, and what had been
// answered by then.
type image struct {
	step string
	fs   *vfs.Mem
	m    *model
}

// takeImages takes images of mem before and after every step that changes it.
func takeImages(mem *vfs.Mem, m *model, seeds uint64) (images *[]image) {
	images = new([]image)
	var mu sync.Mutex
	mem.SetHook(func(op vfs.Op, done bool) {
		mu.Lock()
		defer mu.Unlock()
		known := m.clone() // before the copy: what is answered later need not be in it
		n := len(*images)
		step := fmt.Sprintf("%d: %s %s at %d, done %v", n, op.Kind, op.Path, op.Offset, done)
		*images = append(*images, image{step + ", all unsynced lost", mem.CrashCopy(0, vfs.CrashLose), known})
		for seed := range seeds {
			*images = append(*images, image{fmt.Sprintf("%s, seed %d", step, seed), mem.CrashCopy(seed+uint64(n), vfs.CrashRandom), known})
		}
		if done {
			*images = append(*images, image{step + ", killed", mem.CrashCopy(0, vfs.CrashKeep), known})
		}
	})
	return images
}

// script is a run that rolls over files, forgets and recycles them.
func (r *run) script(rounds int) {
	for i := range rounds {
		waits := []chan struct{}{r.batch(1, 1+i%3), r.batch(relaxedGroup, 1)}
		if i%2 == 0 {
			waits = append(waits, r.batch(2, 2))
		}
		for _, w := range waits {
			<-w
		}
		for range i % 4 { // written, not synced, when the next file may begin
			<-r.batch(relaxedGroup, 1)
		}
		if i%10 == 9 { // a checkpoint: what is answered now is elsewhere too
			pos := r.log.Position()
			r.m.mu.Lock()
			for g := range r.m.written {
				r.m.forgotten[g] = r.next[g]
			}
			r.m.mu.Unlock()
			if err := r.log.Forget(pos); err != nil {
				r.t.Error(err)
			}
		}
	}
}

func TestCrashAtEveryStepLosesNothingAcknowledged(t *testing.T) {
	t.Run("small blocks", func(t *testing.T) { crashAtEveryStep(t, nil) })
	t.Run("written ahead of the sync", func(t *testing.T) { crashAtEveryStep(t, ahead) })
	t.Run("written from where it lies", func(t *testing.T) {
		crashAtEveryStep(t, func(c *Config) { ahead(c); inPlace(c) })
	})
}

func crashAtEveryStep(t *testing.T, tune func(*Config)) {
	mem := newMem(t)
	m := newModel()
	m.tune = tune
	images := takeImages(mem, m, 2)
	log, _, _, err := m.recover(mem)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, m: m, log: log, w: NewWriter(log), next: map[record.Group]record.Index{}}
	rounds := 60
	if testing.Short() {
		rounds = 12
	}
	r.script(rounds)
	if err := r.w.Close(); err != nil {
		t.Fatal(err)
	}
	mem.SetHook(nil)
	// Which the log still holds at its end is chance, as it is forgotten on the way.
	inPlace := 0
	for i := 0; i < len(*images); i += 20 {
		inPlace += gaps(t, (*images)[i].fs)
	}
	if cfg := testConfig(mem); tune != nil {
		if tune(&cfg); (cfg.InPlaceBytes > 0) != (inPlace > 0) {
			t.Errorf("%d records are written from where they lie", inPlace)
		}
	}
	t.Logf("%d images", len(*images))
	for i, im := range *images {
		checkImage(t, im, i%5 == 0)
		if t.Failed() {
			return
		}
	}
}

// checkImage recovers an image; twice: writes on, crashes again and recovers.
func checkImage(t *testing.T, im image, twice bool) {
	t.Helper()
	im.m = im.m.clone() // images of one step share it
	log, rec, f, err := im.m.recover(im.fs)
	if err != nil {
		t.Errorf("crash at step %s: %v", im.step, err)
		return
	}
	if len(rec.Damage) > 0 {
		t.Errorf("crash at step %s: taken for damage: %v", im.step, rec.Damage[0])
		return
	}
	w := NewWriter(log)
	defer w.Close()
	if !twice {
		return
	}
	// What came back is durable now, and entries go on behind it.
	r := &run{t: t, m: im.m, log: log, w: w, next: f.last, life: 1}
	for g, last := range f.last {
		im.m.acked[g] = max(im.m.acked[g], last)
	}
	for _, g := range []record.Group{1, 2, relaxedGroup} {
		r.next[g] = max(r.next[g], im.m.forgotten[g])
		<-r.batch(g, 1)
	}
	for seed := range uint64(3) {
		policy := vfs.CrashRandom
		if seed == 0 {
			policy = vfs.CrashLose
		}
		again, rec, _, err := im.m.clone().recover(im.fs.CrashCopy(seed, policy))
		if err != nil || len(rec.Damage) > 0 {
			t.Errorf("second crash after step %s, seed %d: %v %v", im.step, seed, err, rec.Damage)
			return
		}
		if err := NewWriter(again).Close(); err != nil {
			t.Error(err)
		}
	}
}
