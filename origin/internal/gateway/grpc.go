package gateway

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// grpcCode is the gRPC status of a problem. Without it, clients would read a 429 as UNAVAILABLE and try again at once.
func grpcCode(c header.Code) codes.Code {
	switch c.Status() {
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case http.StatusGatewayTimeout:
		return codes.DeadlineExceeded
	}
	return codes.Unavailable
}

// refuseGRPC writes a problem as a gRPC response of trailers only, which go as headers. The message is the problem's
// body, as in what Envoy makes of a refusal at the edge; it is plain ASCII, so that it needs no percent-encoding.
func refuseGRPC(w http.ResponseWriter, p header.Problem) {
	message := string(bytes.TrimSpace(p.Append(make([]byte, 0, 256))))
	s := status.New(grpcCode(p.Code), message)
	if p.Mode != rule.None && p.RetryAfter > 0 && p.RetryAfter != limit.Never {
		whole, rest := p.RetryAfter/limit.Second, p.RetryAfter%limit.Second
		wait := &durationpb.Duration{Seconds: int64(whole), Nanos: int32(rest * 1000)}
		if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: wait}); err == nil {
			s = detailed
		}
	}
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(int(s.Code())))
	h.Set("Grpc-Message", message)
	if details, err := proto.Marshal(s.Proto()); err == nil {
		h.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(details))
	}
	w.WriteHeader(http.StatusOK)
}
