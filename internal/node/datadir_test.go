package node

import (
	"path"
	"reflect"
	"strings"
	"testing"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

func sampleIdentity() identity {
	return identity{Format: formatVersion, ClusterID: "c", Node: 1, Incarnation: "i", MetaReplica: 1, Founders: []record.NodeID{1}}
}

func TestClaim(t *testing.T) {
	fs := vfs.NewMem()
	first, fresh, err := claim(fs, "/d", 1, "")
	if err != nil || !fresh || first.ClusterID != "" || first.Incarnation == "" {
		t.Fatalf("an empty folder: %+v, fresh: %t, %v", first, fresh, err)
	}
	first.ClusterID, first.MetaReplica, first.Founders = "c", 1, []record.NodeID{1, 2}
	if err := first.write(fs, "/d"); err != nil {
		t.Fatal(err)
	}
	// What was written is durable.
	copied := fs.CrashCopy(1, vfs.CrashLose)
	again, fresh, err := claim(copied, "/d", 1, first.ClusterID)
	if err != nil || fresh || !reflect.DeepEqual(again, first) {
		t.Fatalf("found again %+v, %v; written was %+v", again, err, first)
	}
	// The next start counts once this one was registered, and not before.
	first.Registered = true
	if err := first.write(copied, "/d"); err != nil {
		t.Fatal(err)
	}
	next, _, err := claim(copied, "/d", 1, "")
	if err != nil || next.Starts != first.Starts+1 || next.Run == first.Run || next.Registered {
		t.Fatalf("the next start is %+v, %v; the one before was %+v", next, err, first)
	}
	if again, _, err := claim(copied.CrashCopy(1, vfs.CrashLose), "/d", 1, ""); err != nil || !reflect.DeepEqual(again, next) {
		t.Fatalf("a start that was not registered is tried again as %+v, %v; it was %+v", again, err, next)
	}
	refused := func(what, want string, fsys vfs.FS, node record.NodeID, cluster string) {
		t.Helper()
		_, _, err := claim(fsys, "/d", node, cluster)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want something of %q", what, err, want)
		}
	}
	refused("another node", "belongs to node 1", fs, 2, "")
	refused("another cluster", "belongs to cluster", fs, 1, "other")

	newer := vfs.NewMem()
	id := first
	id.Format = formatVersion + 1
	if err := newer.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	if err := vfs.ReplaceFile(newer, "/d", propertiesFile, id.encode()); err != nil {
		t.Fatal(err)
	}
	refused("a newer format", "start a newer tube", newer, 1, "")

	headless := vfs.NewMem()
	if err := headless.MkdirAll("/d/wal"); err != nil {
		t.Fatal(err)
	}
	refused("data without properties", "not whole", headless, 1, "")
}

// A folder of an earlier format is of this one before anything is written to it, also if its
// last start was not taken by the cluster yet: an older program would misread what is.
func TestAClaimedFolderHasThisFormat(t *testing.T) {
	for _, registered := range []bool{true, false} {
		fs := vfs.NewMem()
		id := sampleIdentity()
		id.Format, id.Starts, id.Run, id.Registered = 1, 3, "r", registered
		if err := fs.MkdirAll("/d"); err != nil {
			t.Fatal(err)
		}
		if err := vfs.ReplaceFile(fs, "/d", propertiesFile, id.encode()); err != nil {
			t.Fatal(err)
		}
		got, _, err := claim(fs, "/d", 1, "")
		if err != nil || (got.Starts == id.Starts) == registered {
			t.Errorf("registered %t: %+v, %v", registered, got, err)
		}
		b, err := vfs.ReadFile(fs.CrashCopy(1, vfs.CrashLose), "/d/"+propertiesFile, maxPropertiesBytes)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := parseIdentity(b); err != nil || id.Format != formatVersion {
			t.Errorf("registered %t: the folder has format %d, %v", registered, id.Format, err)
		}
	}
}

// A flipped bit anywhere in the properties is told, with the file's name.
func TestDamagedPropertiesAreNamed(t *testing.T) {
	size := len(sampleIdentity().encode())
	for i := range size {
		fs := vfs.NewMem()
		if err := fs.MkdirAll("/d"); err != nil {
			t.Fatal(err)
		}
		if err := vfs.ReplaceFile(fs, "/d", propertiesFile, sampleIdentity().encode()); err != nil {
			t.Fatal(err)
		}
		if err := vfs.FlipBit(fs, path.Join("/d", propertiesFile), int64(i), 2); err != nil {
			t.Fatal(err)
		}
		if _, _, err := claim(fs, "/d", 1, ""); err == nil || !strings.Contains(err.Error(), propertiesFile) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
}

func FuzzIdentity(f *testing.F) {
	f.Add(sampleIdentity().encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, err := parseIdentity(b); err == nil && id.Format <= formatVersion && (id.ClusterID == "" || id.Incarnation == "") {
			t.Fatalf("accepted %+v", id)
		}
	})
}
