package bench

import (
	"fmt"
	"io"
	"os"
	"sync"
	"text/tabwriter"

	"golang.org/x/term"
)

// display shows what goes on: a line that is written over on a terminal, lines
// for what is done everywhere.
type display struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
}

// newDisplay shows on standard error.
func newDisplay() *display {
	return &display{w: os.Stderr, terminal: term.IsTerminal(int(os.Stderr.Fd()))}
}

func (d *display) progress(label string, p Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.terminal {
		fmt.Fprintf(d.w, "\r\x1b[K%s  %3.0f %%  %s", label, p.Done*100, number(float64(p.Records)))
	}
}

func (d *display) line(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.terminal {
		fmt.Fprint(d.w, "\r\x1b[K")
	}
	fmt.Fprintf(d.w, format+"\n", args...)
}

// writeTable writes the figures of all outcomes and says whether all are as they must be.
func writeTable(w io.Writer, outcomes []*Outcome) (ok bool, err error) {
	ok = true
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCENARIO\tFIGURE\tVALUE\tUNIT\tMUST\t")
	for _, o := range outcomes {
		name := o.Name
		for _, m := range o.Metrics {
			verdict := ""
			if m.OK != nil {
				verdict = "ok"
				if !*m.OK {
					verdict, ok = "SHORT", false
				}
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", name, m.Name, number(m.Value), m.Unit, m.Must, verdict)
			name = ""
		}
		if o.Error != "" {
			ok = false
			fmt.Fprintf(t, "%s\tFAILED: %s\t\t\t\t\n", o.Name, o.Error)
		}
	}
	return ok, t.Flush()
}
