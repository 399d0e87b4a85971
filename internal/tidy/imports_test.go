package tidy

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/tube-mq/tube/"

// mayImport says which of our own packages each package may import, in the
// manner of Go's go/build/deps_test.go: from the bottom up. A package that is
// not here fails the test: give it its place. "…" stands for all that the named
// package may import.
var mayImport = map[string]string{
	"internal/record":    "",
	"internal/vfs":       "internal/record",
	"internal/wal":       "internal/record internal/vfs",
	"internal/commitlog": "internal/record internal/vfs",
	"internal/pulse":     "",

	// Pure machines.
	"internal/queue":         "internal/record",
	"internal/meta":          "internal/record internal/queue internal/meta/metapb",
	"internal/meta/metapb":   "",
	"internal/group":         "internal/record internal/group/grouppb",
	"internal/group/grouppb": "",

	// What queue groups want, in CEL. It does no I/O and keeps nothing.
	"internal/filter": "",

	"internal/replica": "internal/record internal/pulse internal/vfs internal/wal",
	"internal/peer":    "internal/record internal/pulse",

	// Roles.
	"internal/broker": "internal/record internal/pulse internal/vfs internal/commitlog internal/replica internal/meta internal/queue",
	"internal/master": "internal/record internal/queue internal/filter internal/meta internal/meta/metapb internal/group internal/group/grouppb internal/replica",

	// courier finds whoever leads, on this node or another.
	"internal/courier": "internal/record internal/meta internal/queue",

	// Doors know roles and machines, never another door, a replica or the WAL.
	"internal/kafka": "internal/record internal/broker internal/meta internal/queue internal/group internal/master",
	"internal/rpc":   "proto/tube/v1 proto/tube/v1/tubev1connect internal/record internal/meta internal/queue internal/filter internal/master",

	"internal/config":  "internal/record internal/meta",
	"internal/metrics": "internal/record",

	// sim puts replicas together as node does, on disks and a network of its own.
	"internal/sim": "internal/record internal/queue internal/vfs internal/wal internal/replica internal/broker internal/commitlog internal/meta internal/group",

	// node alone knows concrete types on both sides.
	"internal/node": "internal/record internal/pulse internal/queue internal/filter internal/vfs internal/wal internal/commitlog internal/meta internal/meta/metapb internal/group internal/replica internal/broker internal/master internal/kafka internal/rpc internal/config internal/metrics internal/peer proto/tube/v1 proto/tube/v1/tubev1connect proto/tube/peer/v1 proto/tube/peer/v1/peerv1connect internal/courier",
	"internal/cli":  "internal/config internal/node internal/record internal/vfs internal/wal internal/commitlog internal/replica internal/meta proto/tube/v1 proto/tube/v1/tubev1connect bench",

	// The public API: nothing internal.
	"client":          "proto/tube/v1 proto/tube/v1/tubev1connect",
	"client/outbox":   "client proto/tube/v1",
	"client/ordering": "client",

	"proto/tube/peer/v1":               "proto/tube/v1",
	"proto/tube/peer/v1/peerv1connect": "proto/tube/peer/v1",

	"proto/tube/v1":               "",
	"proto/tube/v1/tubev1connect": "proto/tube/v1",
	"cmd/tube":                    "internal/cli",
	"bench":                       "proto/tube/v1 proto/tube/v1/tubev1connect",
	"bench/peers":                 "", // a module of its own: brokers to compare with
	"bench/cmd/tubebench":         "bench",
	"internal/tidy":               "",
}

// pure packages are fed events and time; they may not reach for more.
var pure = []string{"internal/record", "internal/meta", "internal/group", "internal/queue"}

var impure = map[string]string{
	"net": "does I/O", "net/http": "does I/O", "os": "does I/O", "os/exec": "does I/O", "syscall": "does I/O",
	"math/rand": "has global randomness", "math/rand/v2": "has global randomness", "log": "does I/O",
}

// pureExceptions are imports of pure packages that have a reason.
var pureExceptions = map[string]bool{}

func TestImportsFollowTheTable(t *testing.T) {
	seen := map[string]bool{}
	eachFile(t, func(pkg, file string, imports []string, test bool) {
		if strings.HasPrefix(pkg, "test") || test {
			return
		}
		allowed, ok := mayImport[pkg]
		if !ok {
			if !seen[pkg] {
				t.Errorf("%s is not in the import table: give it its place", pkg)
			}
			seen[pkg] = true
			return
		}
		seen[pkg] = true
		for _, im := range imports {
			own, isOwn := strings.CutPrefix(im, module)
			if isOwn && !slices.Contains(strings.Fields(allowed), own) {
				t.Errorf("%s imports %s, which the table does not allow", file, own)
			}
			if why := impure[im]; why != "" && slices.Contains(pure, pkg) && !pureExceptions[pkg+" "+im] {
				t.Errorf("%s imports %s, but %s is pure and that %s", file, im, pkg, why)
			}
		}
	})
	if len(seen) < 5 {
		t.Fatalf("only %d packages seen: the walk is broken", len(seen))
	}
}

// Nothing but vfs touches the disk, so that every fault can be injected.
func TestOnlyVFSOpensFiles(t *testing.T) {
	storage := []string{"internal/wal", "internal/commitlog", "internal/replica", "internal/broker"}
	eachFile(t, func(pkg, file string, imports []string, test bool) {
		if !test && slices.Contains(storage, pkg) && slices.Contains(imports, "os") {
			t.Errorf("%s imports os: disk access goes through vfs", file)
		}
	})
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	documented := map[string]bool{}
	eachFile(t, func(pkg, file string, _ []string, test bool) {
		if test || strings.HasSuffix(file, ".pb.go") || strings.HasSuffix(file, ".connect.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		documented[pkg] = documented[pkg] || f.Doc != nil && len(f.Doc.Text()) > 40
	})
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment", pkg)
		}
	}
}

const root = "../.."

// eachFile visits every Go file of the tree with its package's path, its own
// path and its imports.
func eachFile(t *testing.T, visit func(pkg, file string, imports []string, test bool)) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == ".git" || name == "testdata" || name == "node_modules" || name == "data" || name == "bin" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		var imports []string
		for _, im := range f.Imports {
			path, err := strconv.Unquote(im.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, path)
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		visit(filepath.ToSlash(filepath.Dir(rel)), rel, imports, strings.HasSuffix(rel, "_test.go"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
