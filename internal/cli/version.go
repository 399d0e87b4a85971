package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// released is set by the linker for a release: -X …/internal/cli.released=v1.2.3.
var released string

// version is the release, or the commit that the binary was built from.
func version() string {
	if released != "" {
		return released
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "dev-" + s.Value[:12]
			}
		}
	}
	return "dev"
}

func newVersion(a *app) *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Tell the version", Args: exactly(0), RunE: func(*cobra.Command, []string) error {
		v := struct {
			Version string `json:"version"`
			Go      string `json:"go"`
			OS      string `json:"os"`
			Arch    string `json:"arch"`
		}{version(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
		return a.done(v, "tube %s (%s, %s/%s)", v.Version, v.Go, v.OS, v.Arch)
	}}
	c.Flags().BoolVar(&a.json, "json", false, "write JSON for programs")
	return c
}
