package test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withCertificates prepares a cluster whose nodes talk by TLS with certificates of one
// authority, which the command line makes. Node i shows the certificate of shows(i).
func withCertificates(t *testing.T, size int, shows func(id int) int) *cluster {
	t.Helper()
	if tubeBinary == "" {
		t.Skip(noBinary)
	}
	dir := filepath.Join(t.TempDir(), "certs")
	if out, err := exec.Command(tubeBinary, "cluster", "certificates", "--dir", dir, "--nodes", "1,2,3,4").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := prepareCluster(t, size)
	for id, n := range c.nodes {
		n.flags = append(n.flags, tlsFlags(dir, shows(id))...)
	}
	return c
}

func tlsFlags(dir string, id int) []string {
	file := filepath.Join(dir, fmt.Sprintf("node-%d", id))
	return []string{"--peer-tls-cert", file + ".pem", "--peer-tls-key", file + "-key.pem", "--peer-tls-ca", filepath.Join(dir, "ca.pem")}
}

func own(id int) int { return id }

// With certificates everything between nodes goes by TLS: a leader's death included.
func TestNodesTalkByTLS(t *testing.T) {
	c := withCertificates(t, 3, own)
	c.start(c.order...)
	c.createTopic("t", 3)
	l := c.startLoad("t", 3, lightLoad)
	l.flowing(200)
	c.node(c.leader("t", 0)).kill()
	l.flowing(200)
	l.finish()
}

// Whoever has no certificate of the cluster's authority is nobody: it learns nothing
// and cannot join.
func TestNodeWithoutCertificateStaysOutside(t *testing.T) {
	c := withCertificates(t, 3, own)
	c.start(c.order...)
	plain := c.add(4, "--roles", "broker", "--masters", c.mastersFlag())
	foreign := c.add(5, "--roles", "broker", "--masters", c.mastersFlag())
	dir := filepath.Join(t.TempDir(), "certs")
	if out, err := exec.Command(tubeBinary, "cluster", "certificates", "--dir", dir, "--nodes", "5").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	foreign.flags = append(foreign.flags, tlsFlags(dir, 5)...)
	plain.launch()
	foreign.launch()
	defer plain.kill()
	defer foreign.kill()
	eventually(t, 20*time.Second, func() error {
		for n, why := range map[*node]string{plain: "if the other nodes talk by TLS", foreign: "certificate signed by unknown authority"} {
			if !n.log.contains(why) {
				return fmt.Errorf("a node does not say %q: %s", why, n.log)
			}
		}
		return nil
	})
	out, err := exec.Command(tubeBinary, "cluster", "nodes", "--json", "--http", c.node(1).http).Output()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(out), `"state"`); n != 3 {
		t.Errorf("the cluster has %d nodes: %s", n, out)
	}
}

// A certificate is one node's: another cannot be started with it.
func TestNodeWithAnothersCertificateIsRefused(t *testing.T) {
	c := withCertificates(t, 3, func(id int) int { return id%3 + 1 })
	c.launchRefused(c.node(1), "is not the certificate of node 1")
}
