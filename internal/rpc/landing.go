package rpc

import (
	_ "embed"
	"html/template"
	"net/http"

	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

//go:embed landing.html
var landingHTML string

var landingPage = template.Must(template.New("landing").Parse(landingHTML))

// landing says to a browser what this is, how it is, and where to go on.
func landing(cfg Config) http.Handler {
	service := newClusterService(cfg, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ready := "ready"
		if err := cfg.Ready(); err != nil {
			ready = "not ready: " + err.Error()
		}
		image := cfg.Cluster.Image()
		kafka := ""
		if n := image.Nodes[cfg.Self.Node]; n != nil {
			kafka = n.Kafka
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
		// The page is in memory and a caller that left needs no answer.
		_ = landingPage.Execute(w, map[string]any{
			"Status": service.status(), "Nodes": nodes(image), "Ready": ready, "Kafka": kafka, "Pprof": cfg.Pprof,
			"StatusPath": tubev1connect.ClusterServiceStatusProcedure,
		})
	})
}
