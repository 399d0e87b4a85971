package databases

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/tube-mq/tube/client/outbox"
)

// kind of a database, reached by a driver.
type kind struct {
	title   string
	dialect outbox.Dialect
	driver  string
	// find looks for the programs: of the server, and what makes its folder.
	find    func() (server, setup string)
	setup   func(dir string) []string
	serve   func(dir string) []string
	dsn     func(dir string) string
	hangUps string // selects the ids of the other connections
	hangUp  string // ends one of them; a format
}

var kinds = []kind{
	postgres("pgx", func(dir string) string { return "host=" + dir + " port=5432 user=tube dbname=postgres sslmode=disable" }),
	postgres("postgres", func(dir string) string { return "host=" + dir + " port=5432 user=tube dbname=postgres sslmode=disable" }),
	{
		title: "mariadb", dialect: outbox.MySQL, driver: "mysql",
		find: func() (string, string) { return found("mariadbd"), found("mariadb-install-db") },
		setup: func(dir string) []string {
			return []string{"--no-defaults", "--datadir=" + dir + "/data", "--auth-root-authentication-method=normal", "--force"}
		},
		serve: func(dir string) []string {
			return []string{"--no-defaults", "--datadir=" + dir + "/data", "--socket=" + dir + "/socket", "--skip-networking", "--pid-file=" + dir + "/pid"}
		},
		dsn:     func(dir string) string { return "root@unix(" + dir + "/socket)/test" },
		hangUps: "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'",
		hangUp:  "KILL %d",
	},
}

func postgres(driver string, dsn func(string) string) kind {
	return kind{
		title: "postgresql by " + map[string]string{"pgx": "pgx", "postgres": "pq"}[driver], dialect: outbox.Postgres, driver: driver,
		find: func() (string, string) {
			const debian = "/usr/lib/postgresql/*/bin/"
			return found("postgres", debian), found("initdb", debian)
		},
		setup: func(dir string) []string {
			return []string{"-D", dir + "/data", "-U", "tube", "-A", "trust", "-E", "UTF8", "--locale=C"}
		},
		serve: func(dir string) []string {
			return []string{"-D", dir + "/data", "-k", dir, "-p", "5432", "-c", "listen_addresses="}
		},
		dsn:     dsn,
		hangUps: "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = 'tube' AND backend_type = 'client backend'",
		hangUp:  "SELECT pg_terminate_backend(%d)",
	}
}

// found is the path of a program, on PATH or in folders that are patterns; or nothing.
func found(program string, folders ...string) string {
	if p, err := exec.LookPath(program); err == nil {
		return p
	}
	for _, f := range append(folders, "/usr/sbin/") {
		if all, _ := filepath.Glob(f + program); len(all) > 0 {
			return all[len(all)-1]
		}
	}
	return ""
}

// process is a server of a database, which may be killed and started again.
type process struct {
	kind
	dir     string
	program string
	cmd     *exec.Cmd
	ended   chan struct{}
	said    *said
}

// server is one as a test has it, with a name for the test's outbox.
type server struct {
	t *testing.T
	*process
	name string
}

// cases are run one after the other on one server.
var cases = []struct {
	name string
	test func(*testing.T, *server)
}{
	{"what commits is sent", whatCommitsIsSent},
	{"any bytes are kept", anyBytesAreKept},
	{"relays and writers at once", relaysAndWritersAtOnce},
	{"one relay keeps the order", oneRelayKeepsTheOrder},
	{"an open transaction holds up nobody", anOpenTransactionHoldsUpNobody},
	{"what cannot be noted is not piled up", whatCannotBeNotedIsNotPiledUp},
	{"a killed relay is succeeded", aKilledRelayIsSucceeded},
}

// TestDatabases runs every case with each kind of database that is installed.
func TestDatabases(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.title, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, k)
			for i, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					c.test(t, &server{t, s.process, fmt.Sprintf("outbox_%d", i)})
				})
			}
		})
	}
}

func newServer(t *testing.T, k kind) *server {
	t.Helper()
	program, setup := k.find()
	if program == "" || setup == "" {
		t.Skipf("no %s is installed: .ci/databases does", k.title)
	}
	dir, err := os.MkdirTemp("", "tube-db-") // not t.TempDir: another user must get in
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, process: &process{kind: k, dir: dir, program: program, said: &said{}}}
	t.Cleanup(func() {
		s.kill()
		os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("what the server said last:\n%s", s.said)
		}
	})
	if as := unprivileged(t); as != nil {
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.command(setup, k.setup(dir)...).Run(); err != nil {
		t.Fatalf("%s: %v\n%s", setup, err, s.said)
	}
	s.start()
	return s
}

// unprivileged is whom servers run as if this is run by root, which they refuse.
func unprivileged(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("servers refuse to be run by root, and there is no user nobody")
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (s *server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, s.said, s.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: unprivileged(s.t), Setpgid: true}
	cmd.Env = append(os.Environ(), "HOME="+s.dir)
	return cmd
}

// start starts the server and waits until it answers.
func (s *server) start() {
	s.t.Helper()
	s.cmd = s.command(s.program, s.serve(s.dir)...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	s.ended = ended
	cmd := s.cmd
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	db := s.open()
	eventually(s.t, func() error { return db.PingContext(s.t.Context()) })
}

// kill kills it and those it has started.
func (s *server) kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	<-s.ended
}

// open is a pool of its own.
func (s *server) open() *sql.DB {
	s.t.Helper()
	db, err := sql.Open(s.driver, s.dsn(s.dir))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = db.Close() })
	return db
}

// hangUpAll ends all connections but the one that does it.
func (s *server) hangUpAll(db *sql.DB) {
	s.t.Helper()
	ctx := context.Background()
	c, err := db.Conn(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	rows, err := c.QueryContext(ctx, s.hangUps)
	if err != nil {
		s.t.Fatal(err)
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			s.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	for _, id := range ids {
		_, _ = c.ExecContext(ctx, fmt.Sprintf(s.hangUp, id)) // it may have gone meanwhile
	}
}

// said is the end of what a process says.
type said struct {
	mu sync.Mutex
	b  []byte
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b = append(s.b, b...)
	s.b = slices.Clone(s.b[max(0, len(s.b)-64<<10):])
	return len(b), nil
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(bytes.TrimSpace(s.b))
}

// eventually waits until f has nothing to complain of.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("it does not come to that: %v", err)
}
