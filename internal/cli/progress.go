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
		line = bar(float64(bytes)/float64(p.total)) + "  " + line
	}
	fmt.Fprintf(p.a.err, "\r\x1b[K%s", line)
}

// share tells that a share of the work is done, from 0 to 1.
func (p *progress) share(share float64, text string) {
	now := p.a.now()
	if !p.on || now.Sub(p.shown) < progressEvery {
		return
	}
	p.shown = now
	fmt.Fprintf(p.a.err, "\r\x1b[K%s  %s", bar(share), text)
}

func bar(share float64) string {
	share = max(0, min(share, 1))
	filled := int(share * progressBar)
	return fmt.Sprintf("[%s%s] %3d %%", strings.Repeat("█", filled), strings.Repeat("·", progressBar-filled), int(share*100))
}

// end removes the line.
func (p *progress) end() {
	if p.on && !p.shown.IsZero() {
		fmt.Fprint(p.a.err, "\r\x1b[K")
	}
}
