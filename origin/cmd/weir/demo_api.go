package main

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/demo"
)

func newDemoAPICommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "api",
		Short: "Serve the API that the demo puts behind Weir",
		Args:  atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("demo api: %w", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "the demo's API listens on %s\n", l.Addr())
			if err := demo.Serve(cmd.Context(), l, demo.NewAPI()); err != nil {
				return fmt.Errorf("demo api: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8090", "where to serve, HOST:PORT")
	return cmd
}
