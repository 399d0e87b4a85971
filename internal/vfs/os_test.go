package vfs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Every FS does the same with what does not fail.
func TestFileSystemsAgree(t *testing.T) {
	for name, fsys := range map[string]FS{"os": OS{}, "mem": NewMem(), "faulty": NewFaulty(NewMem())} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.ToSlash(t.TempDir())
			must(t, fsys.MkdirAll(dir+"/x/y"))
			f, err := fsys.Open(dir+"/x/y/f", Mode{Create: true, Direct: true})
			must(t, err)
			must(t, f.Allocate(4*DirectAlign))
			b := AlignedBytes(2 * DirectAlign)
			for i := range b {
				b[i] = byte(i % 251)
			}
			must(t, f.WriteVec([][]byte{b[:DirectAlign], b[DirectAlign:]}, DirectAlign))
			must(t, f.SyncData())
			must(t, f.Close())
			must(t, fsys.SyncDir(dir+"/x/y"))
			must(t, fsys.Rename(dir+"/x/y/f", dir+"/x/g"))
			got := contentOf(t, fsys, dir+"/x/g")
			if len(got) != 4*DirectAlign || !bytes.Equal(got[DirectAlign:3*DirectAlign], b) || got[0] != 0 {
				t.Fatalf("%d bytes differ", len(got))
			}
			if names, err := fsys.List(dir + "/x"); err != nil || len(names) != 2 || names[0] != "g" {
				t.Fatalf("%v, %v", names, err)
			}
			if i, err := fsys.Stat(dir + "/x"); err != nil || !i.IsDir {
				t.Fatalf("%+v, %v", i, err)
			}
			if _, err := fsys.Open(dir+"/none", Mode{Write: true}); !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			free, err := FreeBytes(fsys, dir)
			if err != nil {
				t.Fatal(err)
			}
			if total, err := TotalBytes(fsys, dir); !errors.Is(err, errors.ErrUnsupported) && (err != nil || total < free) {
				t.Fatalf("the disk is of %d bytes, %d of them free: %v", total, free, err)
			}
		})
	}
}

func TestLockNamesTheHolder(t *testing.T) {
	dir := t.TempDir()
	l, err := LockDir(OS{}, dir)
	must(t, err)
	var locked *LockedError
	if _, err := LockDir(OS{}, dir); !errors.As(err, &locked) || locked.Holder != strconv.Itoa(os.Getpid()) {
		t.Fatalf("second lock: %v", err)
	}
	must(t, l.Close())
	l, err = LockDir(OS{}, dir)
	must(t, err)
	must(t, l.Close())
}

// A vector is written whole: portions of IOV_MAX, interrupted calls, parts of
// any size written at a time.
func TestWriteVecCompletesParts(t *testing.T) {
	var parts [][]byte
	var want []byte
	for i := range 2*maxVec + 7 {
		p := bytes.Repeat([]byte{byte(i)}, i%5)
		parts = append(parts, p)
		want = append(want, p...)
	}
	for _, step := range []int{1, 3, 1000, 1 << 20} {
		var got []byte
		calls := 0
		err := writeVec(parts, 10, func(vec [][]byte, off int64) (int, error) {
			if calls++; calls%3 == 0 {
				return 0, unix.EINTR
			}
			if len(vec) > maxVec || off != int64(10+len(got)) {
				t.Fatalf("%d parts at %d, %d written", len(vec), off, len(got))
			}
			left := step
			for _, v := range vec {
				n := min(left, len(v))
				got = append(got, v[:n]...)
				left -= n
			}
			return step - left, nil
		})
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("step %d: %v, %d of %d bytes", step, err, len(got), len(want))
		}
	}
	if err := writeVec([][]byte{{1, 2}}, 0, func([][]byte, int64) (int, error) { return 0, unix.EIO }); err != unix.EIO {
		t.Fatal(err)
	}
}
