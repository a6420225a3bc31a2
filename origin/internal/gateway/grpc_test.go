package gateway_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A client of gRPC's own library reads what a refusal says, and when to come back.
func TestACallOfGRPCIsRefusedByItsStatus(t *testing.T) {
	for name, c := range map[string]struct {
		settings settings
		key      string // "issued" for one that is known
		code     codes.Code
		problem  string
		retry    time.Duration // 0 for none
	}{
		"over the limit":      {settings{}, "issued", codes.ResourceExhausted, "rate_limited", 90 * time.Minute},
		"a rule that hides":   {settings{rules: strings.ReplaceAll(twoPerHour, "2/1h", "2/1h, headers: none")}, "issued", codes.ResourceExhausted, "rate_limited", 0},
		"an unknown key":      {settings{}, "wk_" + strings.Repeat("1", 28), codes.Unauthenticated, "key_malformed", 0},
		"an API that is down": {settings{upstream: "http://127.0.0.1:1"}, "", codes.Unavailable, "upstream_unreachable", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, c.settings, nil)
			if c.key == "issued" {
				c.key = s.key
				for range 2 {
					s.get("/", "X-Api-Key: "+s.key)
				}
			}
			reached := s.reached()
			_, address, _ := strings.Cut(h2c(t, s.gateway), "://")
			conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if c.key != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "x-api-key", c.key)
			}
			_, err = healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{})
			got := status.Convert(err)
			var problem struct{ Code string }
			if err := json.Unmarshal([]byte(got.Message()), &problem); err != nil || got.Code() != c.code || problem.Code != c.problem {
				t.Errorf("%v %q, want %v with the problem %s", got.Code(), got.Message(), c.code, c.problem)
			}
			var retry time.Duration
			for _, detail := range got.Details() {
				if info, ok := detail.(*errdetails.RetryInfo); ok {
					retry = info.GetRetryDelay().AsDuration()
				}
			}
			if retry != c.retry {
				t.Errorf("retry after %v, want %v", retry, c.retry)
			}
			if s.reached() != reached {
				t.Error("the API was called")
			}
		})
	}
}
