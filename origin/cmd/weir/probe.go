package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func init() { register(newProbeCommand) }

func newProbeCommand() *cobra.Command {
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "probe URL",
		Short: "Ask for a page and fail unless the answer is 200",
		Long: `Ask for a page by GET, write its body to standard output, and fail unless the answer's status is 200.
It is the health check of images that hold no other client, and reads there what listens on loopback alone.`,
		Example: "  weir probe http://127.0.0.1:8084/readyz",
		Args:    exactly("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if within <= 0 {
				return fmt.Errorf("probe: --within %v: want more than 0", within)
			}
			// Redirects are answers too: a page that moved is not the page that was asked for. Nor is a proxy asked.
			client := http.Client{
				Timeout:       within,
				Transport:     &http.Transport{DisableKeepAlives: true},
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			}
			request, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, args[0], nil)
			if err != nil {
				return fmt.Errorf("probe: %w", err)
			}
			answer, err := client.Do(request)
			if err != nil {
				return fmt.Errorf("probe: %w", err)
			}
			defer answer.Body.Close()
			if _, err := io.Copy(cmd.OutOrStdout(), answer.Body); err != nil {
				return fmt.Errorf("probe: %s: %w", args[0], err)
			}
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("probe: %s: status %d, want 200", args[0], answer.StatusCode)
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&within, "within", 2*time.Second, "how long the answer may take")
	return cmd
}
