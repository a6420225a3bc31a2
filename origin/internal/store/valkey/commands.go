package valkey

import (
	"context"
	"errors"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/rule"
)

type commands struct{ s *Store }

func newCommands(s *Store) strategy { return &commands{s} }

func (*commands) take(context.Context, *limiter.Call) error           { return errors.ErrUnsupported }
func (*commands) refund(context.Context, *limiter.Call) error         { return errors.ErrUnsupported }
func (*commands) reset(context.Context, *limiter.Call) error          { return errors.ErrUnsupported }
func (*commands) prepare(context.Context, *node, valkey.Client) error { return errors.ErrUnsupported }
func (*commands) probe(context.Context, *node) error                  { return errors.ErrUnsupported }
func (*commands) supports(a rule.Algorithm) bool                      { return Commands.Supports(a) }
