package node

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// formatVersion is the version of what lies in a data folder. A node refuses a
// newer one; see docs/operations.md on upgrades.
const formatVersion = 1

const (
	// propertiesFile says whose folder this is.
	propertiesFile     = "meta.properties"
	maxPropertiesBytes = 1 << 20
)

// identity is what meta.properties holds: one key=value a line, and last a
// checksum (crc32c=, hexadecimal) of all lines before it.
type identity struct {
	Format      int
	ClusterID   string
	Node        record.NodeID
	Incarnation string // of the folder: a folder that was emptied comes back under another
}

// claim opens or founds a data folder for a node. clusterID may be empty: any.
func claim(fsys vfs.FS, dir string, node record.NodeID, clusterID string) (identity, error) {
	if err := fsys.MkdirAll(dir); err != nil {
		return identity{}, fmt.Errorf("data folder %s: %w", dir, err)
	}
	name := path.Join(dir, propertiesFile)
	b, err := vfs.ReadFile(fsys, name, maxPropertiesBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return found(fsys, dir, node, clusterID)
	}
	if err != nil {
		return identity{}, fmt.Errorf("data folder %s: %w", dir, err)
	}
	id, err := parseIdentity(b)
	if err != nil {
		return identity{}, fmt.Errorf("%s: %w", name, err)
	}
	switch {
	case id.Format > formatVersion:
		return id, fmt.Errorf("%s says that data folder %s has format %d, this program knows up to %d: start a newer tube on it", propertiesFile, dir, id.Format, formatVersion)
	case id.Node != node:
		return id, fmt.Errorf("data folder %s belongs to node %d, this is node %d: give the right --data or --node-id", dir, id.Node, node)
	case clusterID != "" && clusterID != id.ClusterID:
		return id, fmt.Errorf("data folder %s belongs to cluster %s, not to %s: give the right --data", dir, id.ClusterID, clusterID)
	}
	return id, nil
}

// found makes an empty folder this node's. A folder that holds data but no
// properties is not empty, and not ours to overwrite.
func found(fsys vfs.FS, dir string, node record.NodeID, clusterID string) (identity, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return identity{}, fmt.Errorf("data folder %s: %w", dir, err)
	}
	for _, part := range []string{"wal", "checkpoint", "data"} {
		if slices.Contains(names, part) {
			return identity{}, fmt.Errorf("data folder %s holds %s but no %s: it is not whole; restore it from a backup or give an empty folder", dir, part, propertiesFile)
		}
	}
	if clusterID == "" {
		clusterID = uuid.NewString()
	}
	id := identity{formatVersion, clusterID, node, uuid.NewString()}
	return id, vfs.ReplaceFile(fsys, dir, propertiesFile, id.encode())
}

func (id identity) encode() []byte {
	b := fmt.Appendf(nil, "# Whose data folder this is. Do not edit.\nformat=%d\ncluster.id=%s\nnode.id=%d\nincarnation=%s\n",
		id.Format, id.ClusterID, id.Node, id.Incarnation)
	return fmt.Appendf(b, "%s%08x\n", checksumKey, crc32.Checksum(b, record.Castagnoli))
}

var formatLine = regexp.MustCompile(`(?m)^format=([0-9]+)$`)

const checksumKey = "crc32c="

func parseIdentity(b []byte) (identity, error) {
	// A newer format is told before anything else is judged by the rules of this one.
	if m := formatLine.FindSubmatch(b); m != nil {
		if format, err := strconv.Atoi(string(m[1])); err == nil && format > formatVersion {
			return identity{Format: format}, nil
		}
	}
	at := bytes.LastIndex(b, []byte(checksumKey))
	if at < 0 {
		return identity{}, errors.New("it has no checksum: it is damaged, or was edited; restore it from a backup")
	}
	if want := fmt.Sprintf("%s%08x\n", checksumKey, crc32.Checksum(b[:at], record.Castagnoli)); string(b[at:]) != want {
		return identity{}, errors.New("its checksum does not fit: it is damaged, or was edited; restore it from a backup")
	}
	values := map[string]string{}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok {
			return identity{}, fmt.Errorf("line %q is not key=value", line)
		}
		values[k] = v
	}
	format, err := strconv.Atoi(values["format"])
	if err != nil {
		return identity{}, fmt.Errorf("format=%q is not a number", values["format"])
	}
	node, err := strconv.ParseInt(values["node.id"], 10, 32)
	if err != nil {
		return identity{}, fmt.Errorf("node.id=%q is not a number", values["node.id"])
	}
	id := identity{format, values["cluster.id"], record.NodeID(node), values["incarnation"]}
	if id.ClusterID == "" || id.Incarnation == "" {
		return identity{}, errors.New("cluster.id or incarnation is missing")
	}
	return id, nil
}
