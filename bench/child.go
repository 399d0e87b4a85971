package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// line is what a load process writes to standard output, as JSON.
type line struct {
	Progress *Progress `json:"progress,omitempty"`
	Result   *Result   `json:"result,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// program is how this binary is called again: its path, and the words before
// the names of its bench commands.
type program struct {
	path string
	args []string
}

// self is this program, given the words that lead to the bench commands
// ("tube bench", "tubebench").
func self(commandPath string) (program, error) {
	path, err := os.Executable()
	if err != nil {
		return program{}, fmt.Errorf("find this program: %w", err)
	}
	return program{path, strings.Fields(commandPath)[1:]}, nil
}

func (p program) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.path, append(append([]string{}, p.args...), args...)...)
	dieWithParent(cmd)
	return cmd
}

// runLoad does the load in a process of its own.
func (p program) runLoad(ctx context.Context, l Load, report func(Progress)) (*Result, error) {
	spec, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	// A load that hangs is ended well after its time.
	limit := l.Warmup + l.Duration + 4*flushTimeout
	if l.Kind == KindMembers {
		limit += cmp.Or(l.Members.JoinTimeout, memberJoinTimeout)
	}
	if l.Kind != KindFill {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	cmd := p.command(ctx, "load", string(spec))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the load: %w", err)
	}
	result, err := readLoad(out, report)
	if werr := cmd.Wait(); err == nil && werr != nil {
		err = werr
	}
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("%s load: %w", l.Kind, err)
	}
	return result, nil
}

func readLoad(r io.Reader, report func(Progress)) (result *Result, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("what the load said: %w", err)
		}
		switch {
		case l.Error != "":
			err = errors.New(l.Error)
		case l.Result != nil:
			result = l.Result
		case l.Progress != nil && report != nil:
			report(*l.Progress)
		}
	}
	if err == nil && result == nil {
		err = errors.Join(errors.New("it ended without a result"), lines.Err())
	}
	return result, err
}

// serveLoad is the load process's side.
func serveLoad(ctx context.Context, spec string, out io.Writer) error {
	var l Load
	if err := json.Unmarshal([]byte(spec), &l); err != nil {
		return fmt.Errorf("read the load: %w", err)
	}
	enc := json.NewEncoder(out)
	var mu sync.Mutex // a load may report from several goroutines
	result, err := l.Run(ctx, func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		_ = enc.Encode(line{Progress: &p})
	})
	if err != nil {
		return enc.Encode(line{Error: err.Error()})
	}
	return enc.Encode(line{Result: result})
}
