package cli

import (
	"io"

	"github.com/spf13/cobra"
)

func newGroupList(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List groups", Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			adm, ctx, done, err := a.admin(c.Context())
			if err != nil {
				return err
			}
			defer done()
			all, err := adm.ListGroups(ctx)
			if err != nil {
				return err
			}
			out := []listedGroup{}
			for _, g := range all.Sorted() {
				out = append(out, listedGroup{g.Group, g.State, g.ProtocolType, g.Coordinator})
			}
			return a.result(out, func(w io.Writer) error {
				t := newTable("GROUP", "STATE", "TYPE", "COORDINATOR")
				for _, g := range out {
					t.row(g.Name, g.State, g.Type, g.Coordinator)
				}
				return t.write(w)
			})
		},
	}
	return a.client(c)
}

type listedGroup struct {
	Name        string `json:"name"`
	State       string `json:"state"`
	Type        string `json:"protocol_type"`
	Coordinator int32  `json:"coordinator"`
}
