package issuer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Ask gets a token of the issuer at an address. Of one that does not answer, the error says so.
func Ask(ctx context.Context, address string, who Who, life time.Duration) (string, error) {
	if err := who.check(); err != nil {
		return "", err
	}
	form := url.Values{"user": {who.User}, "tenant": {who.Tenant}, "tier": {who.Tier}, "for": {life.String()}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address+TokenPath, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Close = true
	response, err := (&http.Client{Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause // without the method and URL, which stand below
		}
		return "", fmt.Errorf("%s does not answer (%w): is `make run` still there?", address, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxForm))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", address, err)
	}
	text := strings.TrimSpace(string(body))
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", address, response.Status, text)
	}
	return text, nil
}
