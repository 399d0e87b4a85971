package cli

import (
	"fmt"
	"strings"
	"time"
)

const (
	progressEvery = 100 * time.Millisecond
	progressBar   = 24
)

// progress shows on a terminal how far long work is; elsewhere it is silent.
// It is for one goroutine.
type progress struct {
	a       *app
	on      bool
	noun    string
	total   int64 // bytes; 0: not known
	started time.Time
	shown   time.Time
}

func (a *app) newProgress(noun string, totalBytes int64) *progress {
	return &progress{a: a, on: !a.quiet && isTerminal(a.err), noun: noun, total: totalBytes, started: a.now()}
}

// show tells that n things with so many bytes are done; often enough, not always.
func (p *progress) show(n, bytes int64) {
	now := p.a.now()
	if !p.on || now.Sub(p.shown) < progressEvery {
		return
	}
	p.shown = now
	line := fmt.Sprintf("%s, %s/s", plural(n, p.noun), count(int64(float64(n)/max(now.Sub(p.started).Seconds(), 0.001))))
	if p.total > 0 {
		done := min(bytes, p.total)
		filled := int(done * progressBar / p.total)
		line = fmt.Sprintf("[%s%s] %3d %%  %s", strings.Repeat("█", filled), strings.Repeat("·", progressBar-filled), done*100/p.total, line)
	}
	fmt.Fprintf(p.a.err, "\r\x1b[K%s", line)
}

// end removes the line.
func (p *progress) end() {
	if p.on && !p.shown.IsZero() {
		fmt.Fprint(p.a.err, "\r\x1b[K")
	}
}
