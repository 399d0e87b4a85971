package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tube-mq/tube/internal/node"
	"github.com/tube-mq/tube/internal/vfs"
)

func newLogDump(a *app) *cobra.Command {
	d := &logDump{a: a}
	c := &cobra.Command{
		Use:   "dump DIR",
		Short: "Tell what a stopped node's data folder holds, with any damage",
		Long: `Tell what a stopped node's data folder holds, with any damage. Nothing is changed.

Every checksum is verified. Exit code 1 says that there is damage; what it means and what to
do is in docs/operations.md. "unfinished" is no damage: it is a write that a kill or a power
cut ended, which the next start cuts off. While a node runs on the folder, what it is just
writing may look like either.`,
		Args: exactly(1),
		RunE: func(_ *cobra.Command, args []string) error { return d.run(args[0]) },
	}
	c.Flags().BoolVarP(&d.all, "verbose", "v", false, "tell of every item, not only of every file")
	c.Flags().BoolVar(&a.json, "json", false, "write JSON for programs, one object a line")
	return c
}

// logDump collects what each file holds and the damage, which it tells last.
type logDump struct {
	a      *app
	all    bool
	files  []*dumpedFile // in the order in which they came
	byName map[string]*dumpedFile
	damage []dumpLine
	err    error // of writing
}

// dumpedFile is the summary of one file.
type dumpedFile struct {
	Kind    string `json:"kind"` // "file"
	File    string `json:"file"`
	Whose   string `json:"whose,omitempty"`
	Text    string `json:"text,omitempty"`
	Items   int64  `json:"items"`   // sections, entries and the like, or batches
	Records int64  `json:"records"` // of a segment: messages
	First   *int64 `json:"first_offset,omitempty"`
	Last    *int64 `json:"last_offset,omitempty"`
	Damage  int    `json:"damage"`
	// Unfinished: it ends within a write that nobody was told of.
	Unfinished bool `json:"unfinished"`

	item node.DumpKind // of what it is made
}

// dumpLine is one item.
type dumpLine struct {
	Kind    node.DumpKind `json:"kind"`
	File    string        `json:"file"`
	Offset  int64         `json:"offset"` // in bytes, within the file
	Group   uint64        `json:"group,omitempty"`
	Whose   string        `json:"whose,omitempty"`
	Index   uint64        `json:"index,omitempty"`
	Term    uint64        `json:"term,omitempty"`
	Bytes   int64         `json:"bytes,omitempty"`
	First   *int64        `json:"first_offset,omitempty"`
	Last    *int64        `json:"last_offset,omitempty"`
	Records int64         `json:"records,omitempty"`
	Text    string        `json:"text,omitempty"`
	Error   string        `json:"error,omitempty"`
}

func (d *logDump) run(dir string) error {
	d.byName = map[string]*dumpedFile{}
	err := node.Dump(vfs.OS{}, filepath.Clean(dir), d.item)
	switch {
	case errors.Is(err, node.ErrNoDataFolder), errors.Is(err, fs.ErrNotExist):
		return notFound("give the folder that tube start --data names", "%v", err)
	case err != nil:
		return err
	case d.err != nil:
		return d.err
	}
	if err := d.summary(); err != nil {
		return err
	}
	if n := len(d.damage); n > 0 {
		return &failure{exitFailed, plural(int64(n), "damaged place"), "what each means and what to do: docs/operations.md"}
	}
	return nil
}

func (d *logDump) item(i node.DumpItem) {
	line := lineOf(i)
	d.count(i)
	if i.Kind == node.DumpDamage {
		d.damage = append(d.damage, line)
	} else if d.all && d.err == nil {
		d.err = d.write(line, line.String())
	}
}

func lineOf(i node.DumpItem) dumpLine {
	l := dumpLine{
		Kind: i.Kind, File: i.File, Offset: i.Offset, Group: uint64(i.Group), Whose: i.Whose,
		Index: uint64(i.Index), Term: uint64(i.Term), Bytes: i.Bytes, Records: i.Records, Text: i.Text,
	}
	if i.Kind == node.DumpBatch {
		l.First, l.Last = new(int64(i.First)), new(int64(i.Last))
	}
	if i.Err != nil {
		l.Error = i.Err.Error()
	}
	return l
}

// count adds the item to its file's summary.
func (d *logDump) count(i node.DumpItem) {
	f := d.byName[i.File]
	if f == nil {
		f = &dumpedFile{Kind: "file", File: i.File}
		d.byName[i.File] = f
		d.files = append(d.files, f)
	}
	switch i.Kind {
	case node.DumpDamage:
		f.Damage++
	case node.DumpUnfinished:
		f.Unfinished = true
	case node.DumpProperties:
		f.Text = i.Text
		f.item = i.Kind
	case node.DumpBlock:
		f.item = node.DumpEntry
	case node.DumpBatch:
		if f.item = i.Kind; f.First == nil {
			f.First, f.Whose = new(int64(i.First)), i.Whose
		}
		f.Last = new(int64(i.Last))
		f.Items++
		f.Records += i.Records
	default:
		f.item = i.Kind
		f.Items++
	}
}

func (d *logDump) write(v any, text string) error {
	if d.a.json {
		e := json.NewEncoder(d.a.out)
		e.SetEscapeHTML(false)
		return e.Encode(v)
	}
	_, err := fmt.Fprintln(d.a.out, text)
	return err
}

func (l dumpLine) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s @%d  %s", l.File, l.Offset, l.Kind)
	if l.Group != 0 {
		fmt.Fprintf(&b, "  group %d", l.Group)
	}
	if l.Whose != "" {
		fmt.Fprintf(&b, " (%s)", l.Whose)
	}
	switch l.Kind {
	case node.DumpSection, node.DumpEntry, node.DumpHardState:
		fmt.Fprintf(&b, "  index %d  term %d  %s", l.Index, l.Term, plural(l.Bytes, "byte"))
	case node.DumpBlock:
		fmt.Fprintf(&b, "  %s  %s", plural(l.Records, "record"), plural(l.Bytes, "byte"))
	case node.DumpBatch:
		fmt.Fprintf(&b, "  offsets %d–%d  %s  %s", *l.First, *l.Last, plural(l.Records, "record"), plural(l.Bytes, "byte"))
	}
	if l.Text != "" {
		b.WriteString("  " + l.Text)
	}
	if l.Error != "" {
		b.WriteString(": " + l.Error)
	}
	return printable(b.String())
}

// summary tells of every file, and then of the damage.
func (d *logDump) summary() error {
	slices.SortFunc(d.files, func(x, y *dumpedFile) int { return strings.Compare(order(x.File), order(y.File)) })
	if d.a.json {
		for _, f := range d.files {
			if err := d.write(f, ""); err != nil {
				return err
			}
		}
	} else {
		if d.all {
			fmt.Fprintln(d.a.out)
		}
		t := newTable("FILE", "OF", "HOLDS", "")
		for _, f := range d.files {
			t.row(f.File, f.Whose, f.holds(), f.remark())
		}
		if err := t.write(d.a.out); err != nil {
			return err
		}
	}
	return d.tellDamage()
}

func (d *logDump) tellDamage() error {
	if len(d.damage) > 0 && !d.a.json {
		if _, err := io.WriteString(d.a.out, "\nDamage:\n"); err != nil {
			return err
		}
	}
	for _, l := range d.damage {
		if err := d.write(l, l.String()); err != nil {
			return err
		}
	}
	return nil
}

// order puts the folder's own files first, then those below in the order of their names.
func order(file string) string {
	if !strings.Contains(file, "/") {
		return "\x00" + file
	}
	return file
}

func (f *dumpedFile) holds() string {
	switch f.item {
	case node.DumpProperties:
		return f.Text
	case node.DumpSection:
		return plural(f.Items, "group")
	case node.DumpBatch:
		return fmt.Sprintf("offsets %d–%d, %s in %s", *f.First, *f.Last, plural(f.Records, "record"), batches(f.Items))
	case "":
		return ""
	}
	return plural(f.Items, "record")
}

func batches(n int64) string {
	if n == 1 {
		return "1 batch"
	}
	return count(n) + " batches"
}

func (f *dumpedFile) remark() string {
	var out []string
	if f.Damage > 0 {
		out = append(out, fmt.Sprintf("DAMAGED in %s", plural(int64(f.Damage), "place")))
	}
	if f.Unfinished {
		out = append(out, "unfinished")
	}
	return strings.Join(out, ", ")
}
