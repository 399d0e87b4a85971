package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// authority signs certificates of nodes.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = a.sign(template)
	return a
}

func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	template.Subject = pkix.Name{CommonName: "test"}
	template.NotBefore, template.NotAfter = time.Unix(0, 0), time.Unix(4e9, 0)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// mutual is the configuration of a node whose certificate has these names.
func (a *authority) mutual(dns []string, uris ...string) *tls.Config {
	template := &x509.Certificate{DNSNames: dns, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, s := range uris {
		u, err := url.Parse(s)
		if err != nil {
			a.t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	cert, key := a.sign(template)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
		RootCAs:      pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}
}

func withTLS(cfg *tls.Config) func(*Config) {
	return func(c *Config) {
		c.TLS = cfg
		c.Handler = http.HandlerFunc(echoCaller)
	}
}

func TestMutualTLS(t *testing.T) {
	ca := newAuthority(t)
	bubble(t, func(t *testing.T, n *network) {
		a := startNode(t, n, 1, withTLS(ca.mutual([]string{"node-1.tube"})))
		b := startNode(t, n, 2, withTLS(ca.mutual(nil, "spiffe://node-2.tube/peer")))
		defer b.stop(t)
		defer a.stop(t)
		peers(a, b)
		settle(time.Second)
		body := strings.Repeat("secret", 50000)
		a.Send(2, Frame{Kind: 1, Parts: [][]byte{[]byte(body)}})
		settle(time.Second)
		if got := b.got(); !slices.Equal(got, []string{"1 1 " + body}) {
			t.Errorf("received %d frames; log:\n%s%s", len(got), a.logs.b.String(), b.logs.b.String())
		}
		base, c, err := a.Client(2)
		if err != nil {
			t.Fatal(err)
		}
		if code, got := get(t, c, base); code != 200 || got != "HTTP/2.0 {c 1 i1} true" {
			t.Errorf("%d %s", code, got)
		}
		base, c = b.ClientAt(a.addr)
		if code, got := get(t, c, base); code != 200 || got != "HTTP/2.0 {c 2 i2} true" {
			t.Errorf("%d %s", code, got)
		}
	})
}

func TestCertificatesMustNameTheNode(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	for _, c := range []struct {
		name     string
		dialler  *tls.Config
		server   *tls.Config
		sentence string // in the dialler's log
	}{
		{name: "the server is another node", dialler: ca.mutual([]string{"node-1.tube"}), server: ca.mutual([]string{"node-3.tube", "node2:9070"}),
			sentence: `the peer's certificate does not name node-2.tube, but [\"node-3.tube\"]`},
		{name: "the dialler is another node", dialler: ca.mutual([]string{"node-9.tube"}), server: ca.mutual([]string{"node-2.tube"}),
			sentence: `refused: the certificate is not that of node 1: it names [\"node-9.tube\"]`},
		{name: "the dialler is no node", dialler: ca.mutual([]string{"node-01.tube", "node-1.tube.example"}), server: ca.mutual([]string{"node-2.tube"}),
			sentence: "tls: bad certificate"},
		{name: "the server is of another authority", dialler: ca.mutual([]string{"node-1.tube"}), server: stranger.mutual([]string{"node-2.tube"}),
			sentence: "the peer's certificate is not valid"},
		{name: "the dialler is of another authority", dialler: func() *tls.Config {
			cfg := stranger.mutual([]string{"node-1.tube"})
			cfg.RootCAs = ca.mutual(nil).RootCAs
			return cfg
		}(), server: ca.mutual([]string{"node-2.tube"}), sentence: "tls: unknown certificate authority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Over sockets: both ends of a refused handshake write, and a pipe has no
			// room for that.
			a, b := onTCP(t, 1, withTLS(c.dialler)), onTCP(t, 2, withTLS(c.server))
			a.SetPeers(map[record.NodeID]string{2: b.addr})
			eventually(t, "the refusal is logged", func() bool { return a.logs.count(c.sentence) > 0 })
			eventually(t, "a second attempt", func() bool { return b.logs.count("TLS handshake error") > 1 || a.logs.count("refused:") > 0 })
			if n := a.logs.count(c.sentence); n != 1 {
				t.Errorf("logged %d times; log:\n%s", n, a.logs.b.String())
			}
			if b.Alive(1) {
				t.Error("up")
			}
			base, client, err := a.Client(2)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Get(base)
			if err == nil {
				_ = resp.Body.Close()
			}
			if err == nil && resp.StatusCode == 200 {
				t.Error("a control call was served")
			}
		})
	}
}
