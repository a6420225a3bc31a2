package limit_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/weirproject/weir/shared/limit/limittest"
)

func TestVectorsHoldOnNativeCode(t *testing.T) {
	files, err := limittest.ReadAll(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	cases, calls, wrong := limittest.Run(files)
	for _, line := range wrong {
		t.Error(line)
	}
	t.Logf("vectors: %s %d cases, %d calls", runtime.GOARCH, cases, calls)
}
