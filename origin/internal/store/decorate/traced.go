package decorate

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirproject/weir/origin/internal/limiter"
)

// Traced gives every request to next a span under the one that its context has, if that is recorded; without one it costs
// nothing. A span tells how many rules were asked and what came of it: never a principal, nor a counter's name.
func Traced(next limiter.Store) limiter.Store { return &traced{next} }

type traced struct{ next limiter.Store }

// scope is what spans say they come from.
const scope = "github.com/weirproject/weir/origin/internal/store"

// begin starts a span; nil where nothing records it.
func begin(ctx context.Context, op string, c *limiter.Call) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, nil
	}
	return parent.TracerProvider().Tracer(scope).Start(ctx, "store "+op, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("weir.store.op", op), attribute.Int("weir.rules", len(c.Charges))))
}

// end ends a span with what came of its call.
func end(span trace.Span, err error, status string) {
	if err != nil {
		status = reason(err) // the error's text may name an address
		span.SetStatus(codes.Error, status)
	}
	span.SetAttributes(attribute.String("weir.store.status", status))
	span.End()
}

func (t *traced) Take(ctx context.Context, c *limiter.Call) error {
	ctx, span := begin(ctx, "take", c)
	err := t.next.Take(ctx, c)
	if span != nil {
		end(span, err, statusWords[standing(c)])
	}
	return err
}

func (t *traced) Refund(ctx context.Context, c *limiter.Call) error {
	ctx, span := begin(ctx, "refund", c)
	err := t.next.Refund(ctx, c)
	if span != nil {
		end(span, err, "done")
	}
	return err
}

func (t *traced) Reset(ctx context.Context, c *limiter.Call) error {
	ctx, span := begin(ctx, "reset", c)
	err := t.next.Reset(ctx, c)
	if span != nil {
		end(span, err, "done")
	}
	return err
}
