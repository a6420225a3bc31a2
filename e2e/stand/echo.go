package stand

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
)

// EchoTrailer is the trailer in which [echo] says back what a client's metadata of that name says.
const EchoTrailer = "x-echo"

// echo answers with the payload of the request, or with the status that it asks for.
type echo struct {
	testgrpc.UnimplementedTestServiceServer
}

func trailer(ctx context.Context) metadata.MD {
	md, _ := metadata.FromIncomingContext(ctx)
	return metadata.MD{EchoTrailer: md.Get(EchoTrailer)}
}

// UnaryCall implements [testgrpc.TestServiceServer].
func (echo) UnaryCall(ctx context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	if err := grpc.SetTrailer(ctx, trailer(ctx)); err != nil {
		return nil, err
	}
	if s := r.GetResponseStatus(); s != nil {
		return nil, grpcstatus.Error(codes.Code(s.GetCode()), s.GetMessage())
	}
	return &testgrpc.SimpleResponse{Payload: r.GetPayload()}, nil
}

// FullDuplexCall implements [testgrpc.TestServiceServer].
func (echo) FullDuplexCall(s grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error {
	s.SetTrailer(trailer(s.Context()))
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&testgrpc.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
			return err
		}
	}
}

// sendBack sends each message of a websocket back until the client closes it.
func sendBack(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 20)
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		if err := conn.Write(r.Context(), kind, message); err != nil {
			return
		}
	}
}
