package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/config"
)

// A log of JSON tells durations with their unit.
func TestDurationsInTheLogHaveAUnit(t *testing.T) {
	var out strings.Builder
	newLogger(&out, &config.Config{LogFormat: "json"}).Info("ready", "took", 22*time.Millisecond)
	if !strings.Contains(out.String(), `"took":"22ms"`) {
		t.Errorf("logged %s", out.String())
	}
}
