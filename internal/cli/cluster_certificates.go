package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// newClusterCertificates makes what mutual TLS between nodes needs, for those who
// have no authority of their own.
func newClusterCertificates(a *app) *cobra.Command {
	var dir string
	var nodes string
	var valid time.Duration
	cmd := &cobra.Command{
		Use: "certificates", Short: "Make an authority and certificates for TLS between nodes", Args: exactly(0),
		Long: "Makes DIR/ca.pem and DIR/ca-key.pem, if they are not there, and for each node DIR/node-ID.pem and DIR/node-ID-key.pem.\n" +
			"Copy ca.pem and a node's two files to its machine, and keep ca-key.pem away from all of them: whoever has it can make nodes.",
		Example: "  tube cluster certificates --dir certs --nodes 1,2,3",
		RunE: func(*cobra.Command, []string) error {
			if nodes == "" {
				return usage("for example: --nodes 1,2,3", "which nodes?")
			}
			ids, err := nodeArgs(nodes)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			ca, key, err := authority(dir, valid)
			if err != nil {
				return err
			}
			var made []string
			for _, id := range ids {
				if err := nodeCertificate(dir, int(id), valid, ca, key); err != nil {
					return err
				}
				name := filepath.Join(dir, fmt.Sprintf("node-%d", id))
				made = append(made, fmt.Sprintf("tube start --node-id %d --peer-tls-cert %s.pem --peer-tls-key %s-key.pem --peer-tls-ca %s …", id, name, name, filepath.Join(dir, "ca.pem")))
			}
			return a.done(struct {
				Dir   string  `json:"dir"`
				Nodes []int32 `json:"nodes"`
			}{dir, ids}, "Certificates for %d nodes are in %s:\n%s", len(ids), dir, strings.Join(made, "\n"))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "certs", "folder for the files")
	cmd.Flags().StringVar(&nodes, "nodes", "", "ids of the nodes, for example 1,2,3")
	cmd.Flags().DurationVar(&valid, "valid", 2*365*24*time.Hour, "how long the certificates are valid")
	return cmd
}

// authority reads the folder's, or makes it.
func authority(dir string, valid time.Duration) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem")
	certPEM, err := os.ReadFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, nil, err
		}
		ca := &x509.Certificate{
			Subject: pkix.Name{CommonName: "tube cluster authority"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
			KeyUsage: x509.KeyUsageCertSign,
		}
		return ca, key, writeCertificate(certFile, keyFile, ca, ca, key, key, 5*valid)
	}
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("%s is there, its key is not: %w", certFile, err)
	}
	c, k := firstBlock(certPEM), firstBlock(keyPEM)
	ca, err := x509.ParseCertificate(c)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", certFile, err)
	}
	key, err := x509.ParseECPrivateKey(k)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", keyFile, err)
	}
	return ca, key, nil
}

func firstBlock(b []byte) []byte {
	if p, _ := pem.Decode(b); p != nil {
		return p.Bytes
	}
	return nil
}

func nodeCertificate(dir string, id int, valid time.Duration, ca *x509.Certificate, caKey *ecdsa.PrivateKey) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("node-%d.tube", id)
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	file := filepath.Join(dir, fmt.Sprintf("node-%d", id))
	return writeCertificate(file+".pem", file+"-key.pem", c, ca, key, caKey, valid)
}

// writeCertificate signs c and writes it with its key, which only its owner may read.
func writeCertificate(certFile, keyFile string, c, by *x509.Certificate, key, signer *ecdsa.PrivateKey, valid time.Duration) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	c.SerialNumber = serial
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(valid)
	der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}
