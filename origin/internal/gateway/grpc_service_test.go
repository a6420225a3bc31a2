package gateway_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// echo is a service whose one method sends back each message, in both directions at once.
var echo = grpc.ServiceDesc{
	ServiceName: "test.Echo", HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{StreamName: "Echo", ServerStreams: true, ClientStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
		sent, _ := metadata.FromIncomingContext(stream.Context())
		stream.SetTrailer(metadata.Pairs("x-last", "1", "x-weir-hint", "v1", "x-bin-bin", "\x00\xff"))
		if err := stream.SendHeader(metadata.Pairs("x-saw", strings.Join(sent.Get("x-mine"), "|"), "x-saw-weir", fmt.Sprint(len(sent.Get("x-weir-class"))))); err != nil {
			return err
		}
		for {
			message := &wrapperspb.StringValue{}
			if err := stream.RecvMsg(message); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			if message.Value == "fail" {
				failed, _ := status.New(codes.DataLoss, "lost: é").WithDetails(&errdetails.ErrorInfo{Reason: "R"})
				return failed.Err()
			}
			if err := stream.SendMsg(message); err != nil {
				return err
			}
		}
	}}},
}

// services is an API for gRPC, in clear text or not.
func services(t *testing.T, o ...grpc.ServerOption) (address string, healthy *health.Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(o...)
	healthy = health.NewServer()
	grpc_health_v1.RegisterHealthServer(s, healthy)
	s.RegisterService(&echo, nil)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		healthy.Shutdown()
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), healthy
}

// calling is a gRPC client of the gateway.
func calling(t *testing.T, address string, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// forGRPC runs a test over clear text and over TLS, both ways.
func forGRPC(t *testing.T, rules string, test func(t *testing.T, s *stand, conn *grpc.ClientConn, healthy *health.Server)) {
	t.Run("in clear text", func(t *testing.T) {
		address, healthy := services(t)
		s := start(t, settings{rules: rules, upstream: "http://" + address}, nil)
		test(t, s, calling(t, strings.TrimPrefix(h2c(t, s.gateway), "http://"), insecure.NewCredentials()), healthy)
	})
	t.Run("in TLS", func(t *testing.T) {
		_, _, authority := secure(t, nil)
		address, healthy := services(t, grpc.Creds(credentials.NewServerTLSFromCert(pointer(authority.Issue(t, "localhost").TLS(t)))))
		s := start(t, settings{rules: rules, upstream: "https://" + address}, nil)
		s.gateway.TrustAPI(authority.Pool)
		url, _, front := secure(t, s.gateway)
		test(t, s, calling(t, strings.TrimPrefix(url, "https://"), credentials.NewTLS(&tls.Config{RootCAs: front.Pool})), healthy)
	})
}

func pointer[T any](v T) *T { return &v }

func TestAGRPCServiceWorksThroughTheGateway(t *testing.T) {
	forGRPC(t, manyPerHour, func(t *testing.T, s *stand, conn *grpc.ClientConn, healthy *health.Server) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		// Unary, with a status of the API's own.
		client := grpc_health_v1.NewHealthClient(conn)
		var head metadata.MD
		if r, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&head)); err != nil || r.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Fatalf("%v, %v", r, err)
		}
		if got := head.Get("x-ratelimit-remaining"); len(got) != 1 || got[0] != "999" {
			t.Errorf("remaining %v", got)
		}
		for range 50 { // it has no body: whether a flush tears its head from its end was a race
			if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "none"}); status.Code(err) != codes.NotFound {
				t.Fatalf("the API's status became %v", err)
			}
		}
		// The API streams, and the client gives up.
		watching, stop := context.WithCancel(ctx)
		watch, err := client.Watch(watching, &grpc_health_v1.HealthCheckRequest{Service: "w"})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []grpc_health_v1.HealthCheckResponse_ServingStatus{
			grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN, grpc_health_v1.HealthCheckResponse_NOT_SERVING, grpc_health_v1.HealthCheckResponse_SERVING,
		} {
			if want != grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN {
				healthy.SetServingStatus("w", want)
			}
			if r, err := watch.Recv(); err != nil || r.Status != want {
				t.Fatalf("%v, %v, want %v", r, err, want)
			}
		}
		stop()
		if _, err := watch.Recv(); status.Code(err) != codes.Canceled {
			t.Errorf("after giving up: %v", err)
		}
		// Both at once.
		stream, err := conn.NewStream(metadata.AppendToOutgoingContext(ctx, "x-mine", "a", "x-mine", "b", "x-weir-class", "valid"), &echo.Streams[0], "/test.Echo/Echo")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"one", strings.Repeat("long", 20_000), ""} {
			if err := stream.SendMsg(wrapperspb.String(text)); err != nil {
				t.Fatal(err)
			}
			got := &wrapperspb.StringValue{}
			if err := stream.RecvMsg(got); err != nil || got.Value != text {
				t.Fatalf("%.9q, %v", got.Value, err)
			}
		}
		if head, err := stream.Header(); err != nil || strings.Join(head.Get("x-saw"), ",") != "a|b" || head.Get("x-saw-weir")[0] != "0" {
			t.Errorf("%v, %v", head, err)
		}
		if err := stream.SendMsg(wrapperspb.String("fail")); err != nil {
			t.Fatal(err)
		}
		err = stream.RecvMsg(&wrapperspb.StringValue{})
		if failed := status.Convert(err); failed.Code() != codes.DataLoss || failed.Message() != "lost: é" || len(failed.Details()) != 1 {
			t.Errorf("the API's status became %v", err)
		}
		if last := stream.Trailer(); strings.Join(last.Get("x-last"), "|") != "1" || strings.Join(last.Get("x-bin-bin"), "|") != "\x00\xff" || len(last.Get("x-weir-hint")) != 0 {
			t.Errorf("trailers %v", last)
		}
		s.quiet("all that")
	})
}

func TestARefusedGRPCCallSaysWhenToComeBack(t *testing.T) {
	forGRPC(t, "version: 1\nrules:\n- {name: r, where: origin, by: [address], limit: 1/1h}\n", func(t *testing.T, s *stand, conn *grpc.ClientConn, _ *health.Server) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		client := grpc_health_v1.NewHealthClient(conn)
		if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		refused := status.Convert(err)
		if refused.Code() != codes.ResourceExhausted || len(refused.Details()) != 1 || !strings.Contains(refused.Message(), `"rule":"r"`) {
			t.Fatalf("%v", err)
		}
		if wait := refused.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration(); wait <= 0 {
			t.Errorf("wait %v", wait)
		}
		_, err = client.Check(metadata.AppendToOutgoingContext(ctx, "x-api-key", "wk_none"), &grpc_health_v1.HealthCheckRequest{})
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("no key: %v", err)
		}
		stream, err := conn.NewStream(ctx, &echo.Streams[0], "/test.Echo/Echo")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&wrapperspb.StringValue{}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a stream: %v", err)
		}
	})
}
