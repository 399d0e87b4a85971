package node

import (
	"bytes"
	"cmp"
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

// formatVersion is the version of what lies in a data folder: 2 since the write-ahead
// log's blocks have version 2, which programs of 1 would take for a torn end. A node
// refuses a newer one; see docs/operations.md on upgrades.
const formatVersion = 2

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
	// MetaReplica is the node's replica of the masters' own groups; 0: the cluster
	// has not said yet.
	MetaReplica record.ReplicaID
	// Founders are the masters that voted at first, if this node was one of them:
	// the replica id of each is its node id.
	Founders []record.NodeID
	// Starts counts the starts of the folder that were registered with the cluster, and the
	// present one. Run names that one: two copies of a folder choose different ones. A copy that
	// is put back is known by them (meta.Node.OlderCopy), and stays so however often it is
	// started: its count goes on only once the cluster has taken it.
	Starts uint64
	Run    string
	// Registered: the cluster has taken the start.
	Registered bool
	// Recovery is an unsafe recovery of the masters from this folder that is under way;
	// see recovery.go.
	Recovery recovery
	// Anew: the replicas of the masters' groups that lie here are not those of MetaReplica
	// and are to be forgotten.
	Anew bool
}

// voters are the replicas that the masters' groups began with; nil if this node
// came later.
func (id identity) voters() []record.ReplicaID {
	out := make([]record.ReplicaID, len(id.Founders))
	for i, n := range id.Founders {
		out[i] = record.ReplicaID(n)
	}
	return out
}

// founding reports whether the cluster may be one that is just being founded: it has
// never taken a start of this folder. Later nobody becomes a founder: an empty folder
// would vote as the replica that was lost.
func (id identity) founding() bool { return id.Starts <= 1 && !id.Registered }

// claim opens a node's data folder, and counts the start before anybody is told of it. From
// then on the folder is of this program's format, before anything is written in that.
// clusterID may be empty: any. One that is empty has an identity without a cluster, with
// fresh set: it is not written yet.
func claim(fsys vfs.FS, dir string, node record.NodeID, clusterID string) (id identity, fresh bool, err error) {
	id, err = readIdentity(fsys, dir, node, clusterID)
	if err == nil && id.Recovery.ID != "" && !id.Recovery.Forced {
		return id, false, fmt.Errorf("data folder %s: an unsafe recovery of the masters was begun and not ended: give the command once more", dir)
	}
	if begins := id.Registered || id.Run == ""; err == nil && (begins || id.Format < formatVersion) {
		if begins {
			id.Starts, id.Run, id.Registered = id.Starts+1, uuid.NewString(), false
		}
		return id, false, id.write(fsys, dir)
	}
	if !errors.Is(err, errFresh) {
		return id, false, err
	}
	if err := checkEmpty(fsys, dir); err != nil {
		return identity{}, false, err
	}
	return identity{Format: formatVersion, ClusterID: clusterID, Node: node, Incarnation: uuid.NewString(), Starts: 1, Run: uuid.NewString()}, true, nil
}

var errFresh = errors.New("the data folder is empty")

func readIdentity(fsys vfs.FS, dir string, node record.NodeID, clusterID string) (identity, error) {
	if err := fsys.MkdirAll(dir); err != nil {
		return identity{}, fmt.Errorf("data folder %s: %w", dir, err)
	}
	name := path.Join(dir, propertiesFile)
	b, err := vfs.ReadFile(fsys, name, maxPropertiesBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return identity{}, errFresh
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

// checkEmpty refuses a folder that holds data but no properties: it is not ours to
// overwrite.
func checkEmpty(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	for _, part := range []string{"wal", "checkpoint", "data"} {
		if slices.Contains(names, part) {
			return fmt.Errorf("data folder %s holds %s but no %s: it is not whole; restore it from a backup or give an empty folder", dir, part, propertiesFile)
		}
	}
	return nil
}

// write makes the folder this node's, and of this program's format.
func (id identity) write(fsys vfs.FS, dir string) error {
	id.Format = formatVersion
	if err := vfs.ReplaceFile(fsys, dir, propertiesFile, id.encode()); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

func (id identity) encode() []byte {
	b := fmt.Appendf(nil, "# Whose data folder this is. Do not edit.\nformat=%d\ncluster.id=%s\nnode.id=%d\nincarnation=%s\n",
		id.Format, id.ClusterID, id.Node, id.Incarnation)
	b = fmt.Appendf(b, "meta.replica=%d\nfounders=%s\nstarts=%d\nrun=%s\nregistered=%t\n", id.MetaReplica, joinNodes(id.Founders), id.Starts, id.Run, id.Registered)
	if id.Anew {
		b = append(b, "meta.anew=true\n"...)
	}
	if r := id.Recovery; r.ID != "" {
		b = fmt.Appendf(b, "recovery=%s\nrecovery.forced=%t\nrecovery.lost=%s\n", r.ID, r.Forced, joinLost(r.Lost))
	}
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
	id := identity{Format: format, ClusterID: values["cluster.id"], Node: record.NodeID(node), Incarnation: values["incarnation"]}
	// Folders of the first versions lack both: their node was alone, as replica 1.
	replica, err := strconv.ParseUint(cmp.Or(values["meta.replica"], "1"), 10, 64)
	if err != nil {
		return identity{}, fmt.Errorf("meta.replica=%q is not a number", values["meta.replica"])
	}
	id.MetaReplica = record.ReplicaID(replica)
	founders, ok := values["founders"]
	if !ok {
		founders = "1"
	}
	if id.Founders, err = splitNodes(founders); err != nil {
		return identity{}, err
	}
	if id.Starts, err = strconv.ParseUint(cmp.Or(values["starts"], "0"), 10, 64); err != nil {
		return identity{}, fmt.Errorf("starts=%q is not a number", values["starts"])
	}
	id.Run, id.Registered, id.Anew = values["run"], values["registered"] == "true", values["meta.anew"] == "true"
	id.Recovery.ID, id.Recovery.Forced = values["recovery"], values["recovery.forced"] == "true"
	if id.Recovery.Lost, err = splitLost(values["recovery.lost"]); err != nil {
		return identity{}, err
	}
	if id.ClusterID == "" || id.Incarnation == "" {
		return identity{}, errors.New("cluster.id or incarnation is missing")
	}
	return id, nil
}

func joinNodes(ids []record.NodeID) string {
	parts := make([]string, len(ids))
	for i, n := range ids {
		parts[i] = strconv.Itoa(int(n))
	}
	return strings.Join(parts, ",")
}

func splitNodes(s string) ([]record.NodeID, error) {
	var out []record.NodeID
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.ParseInt(part, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("founders=%q is not a list of numbers", s)
		}
		out = append(out, record.NodeID(n))
	}
	return out, nil
}
