package longhaul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const stored = `{"id":"1:0:-1","now":1}`

// serve starts a gateway with this handler, and returns its URL.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func client(t *testing.T, config Config) *Client {
	t.Helper()
	t.Setenv("LONGHAUL_TOKEN", "")
	client, err := NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"status":%d,"code":%q,"title":"","detail":"planted"}`, status, code)
}

// cut closes the connection without an answer.
func cut(w http.ResponseWriter) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		connection.Close()
	}
}

type transport func(*http.Request) (*http.Response, error)

func (answer transport) RoundTrip(sent *http.Request) (*http.Response, error) { return answer(sent) }

func TestAnotherGatewayOfTheListIsAsked(t *testing.T) {
	var hosts []string
	answer := func(sent *http.Request) (*http.Response, error) {
		hosts = append(hosts, sent.URL.Scheme+"://"+sent.URL.Host)
		if sent.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("without the token: %v", sent.Header)
		}
		status, body := http.StatusCreated, stored
		if len(hosts) == 1 {
			status, body = http.StatusServiceUnavailable, `{"code":"draining"}`
		}
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: sent}, nil
	}
	config := Config{
		Gateways:  []string{"http://one:1", "https://other:2"},
		Token:     func() string { return "secret" },
		Transport: transport(answer),
	}
	synctest.Test(t, func(t *testing.T) {
		if _, err := client(t, config).Submit(t.Context(), "q", Submission{}); err != nil {
			t.Fatal(err)
		}
	})
	if !slices.Equal(hosts, config.Gateways) {
		t.Error(hosts)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	other := serve(t, func(_ http.ResponseWriter, sent *http.Request) {
		t.Errorf("the other host got %v", sent.Header)
	})
	first := serve(t, func(w http.ResponseWriter, sent *http.Request) {
		http.Redirect(w, sent, other, http.StatusTemporaryRedirect)
	})
	_, err := client(t, Config{Gateways: []string{first}, Token: func() string { return "secret" }, Patience: -1}).Get(t.Context(), "q", "1:0:-1")
	var refused *GatewayError
	if !errors.As(err, &refused) || refused.Code != "http_307" {
		t.Fatal(err)
	}
}

// Only a gateway's own code says that nothing was done: a proxy may answer after the gateway has got
// the request.
func TestAnUnknownOutcomeIsAnErrorOfItsOwn(t *testing.T) {
	answers := map[string]func(http.ResponseWriter){
		"no answer":       cut,
		"outcome_unknown": func(w http.ResponseWriter) { refuse(w, http.StatusServiceUnavailable, "outcome_unknown") },
		"a proxy":         func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			var keys []any
			var mutex sync.Mutex
			gateway := serve(t, func(w http.ResponseWriter, sent *http.Request) {
				mutex.Lock()
				defer mutex.Unlock()
				var body map[string]any
				if err := json.NewDecoder(sent.Body).Decode(&body); err != nil {
					t.Error(err)
				}
				if keys = append(keys, body["idempotency_key"]); len(keys) == 1 {
					answer(w)
				} else {
					fmt.Fprint(w, stored)
				}
			})
			seen := func() []any {
				mutex.Lock()
				defer mutex.Unlock()
				return slices.Clone(keys)
			}
			submitter := client(t, Config{Gateways: []string{gateway}})
			_, err := submitter.Submit(t.Context(), "q", Submission{DedupeKey: "d"})
			if !errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrUnreachable) || len(seen()) != 1 {
				t.Fatalf("%v after %v", err, seen())
			}
			mutex.Lock()
			keys = nil
			mutex.Unlock()
			// With a key of its own, the submit is repeated.
			for range 2 {
				if id, err := submitter.Submit(t.Context(), "q", Submission{}); id != "1:0:-1" || err != nil {
					t.Fatal(id, err)
				}
			}
			if it := seen(); len(it) != 3 || it[0] == nil || it[0] != it[1] || it[2] == it[1] {
				t.Fatal(it)
			}
		})
	}
}

// The first attempt may have taken effect, so the last error must not say that nothing was done.
func TestAnUnknownOutcomeIsNotForgotten(t *testing.T) {
	attempts := 0
	config := Config{Gateways: []string{"http://here"}, Patience: time.Second, Transport: transport(func(*http.Request) (*http.Response, error) {
		if attempts++; attempts == 1 {
			return nil, io.ErrUnexpectedEOF
		}
		body := io.NopCloser(strings.NewReader(`{"code":"draining"}`))
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: body}, nil
	})}
	synctest.Test(t, func(t *testing.T) {
		_, err := client(t, config).Submit(t.Context(), "q", Submission{})
		if !errors.Is(err, ErrOutcomeUnknown) || attempts < 2 {
			t.Fatalf("%v after %d attempts", err, attempts)
		}
	})
}

func TestNothingIsDoneWithoutAConnection(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	config := Config{Gateways: []string{server.URL}, Patience: time.Millisecond}
	_, err := client(t, config).Submit(t.Context(), "q", Submission{DedupeKey: "d"})
	if !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client(t, config).Cancel(ctx, "q", "1:0:-1", ""); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestASubmissionHasTheFieldsOfTheGateway(t *testing.T) {
	var body map[string]any
	gateway := serve(t, func(w http.ResponseWriter, sent *http.Request) {
		body = nil
		if err := json.NewDecoder(sent.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, stored)
	})
	submitter := client(t, Config{Gateways: []string{gateway}})
	for _, it := range []struct {
		submission Submission
		expected   string
	}{
		{Submission{Payload: json.RawMessage(`{"a": "<"}`)}, `{"payload": "{\"a\": \"<\"}"}`},
		{Submission{Payload: []byte{0, 255}}, `{"payload_base64": "AP8="}`},
		{
			Submission{Delay: 90 * time.Second, ScheduledAt: time.UnixMilli(7), Tags: []string{"eu"}, Overwrite: true},
			`{"payload": "", "delay": "90000ms", "scheduled_at": 7, "tags": ["eu"], "overwrite": true}`,
		},
	} {
		it.submission.IdempotencyKey = "mine"
		if _, err := submitter.Submit(t.Context(), "q", it.submission); err != nil {
			t.Fatal(err)
		}
		expected := map[string]any{"idempotency_key": "mine"}
		if err := json.Unmarshal([]byte(it.expected), &expected); err != nil {
			t.Fatal(err)
		}
		if !maps.EqualFunc(body, expected, func(one, other any) bool { return fmt.Sprint(one) == fmt.Sprint(other) }) {
			t.Errorf("%v instead of %v", body, expected)
		}
	}
}

// A result of a megabyte had many control characters, each of 6 bytes in JSON. The report was too large,
// and the task failed for good. So did a page of HTML, because Go escapes its characters.
func TestTextThatJSONMakesLongIsSentInBase64(t *testing.T) {
	var body []byte
	gateway := serve(t, func(w http.ResponseWriter, sent *http.Request) {
		body, _ = io.ReadAll(sent.Body)
		fmt.Fprint(w, stored)
	})
	submitter := client(t, Config{Gateways: []string{gateway}})
	for text, field := range map[string]string{
		strings.Repeat("\x01", 1_000_000): "payload_base64",
		strings.Repeat("<&>", 400_000):    "payload",
		strings.Repeat("ü", 500_000):      "payload",
		"short \x01":                      "payload",
	} {
		if _, err := submitter.Submit(t.Context(), "q", Submission{Payload: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(body, &fields); err != nil || fields[field] == nil || len(body) > 1_500_000 {
			t.Errorf("%.10q: %d bytes, %v", text, len(body), err)
		}
	}
}

// A token was read from a file while it was replaced. The request was sent without a token, or its
// outcome counted as unknown.
func TestATokenThatIsHalfWrittenIsNone(t *testing.T) {
	var tokens []string
	gateway := serve(t, func(w http.ResponseWriter, sent *http.Request) {
		tokens = append(tokens, sent.Header.Get("Authorization"))
		fmt.Fprint(w, stored)
	})
	for _, odd := range []string{"", "\n", "half\nsecret", "half secret", "h\u20aclf", "\x00"} {
		tokens = nil
		attempts := 0
		config := Config{Gateways: []string{gateway}, Token: func() string {
			if attempts++; attempts == 1 {
				return odd
			}
			return "fresh\n"
		}}
		if _, err := client(t, config).Submit(t.Context(), "q", Submission{DedupeKey: "d"}); err != nil || !slices.Equal(tokens, []string{"Bearer fresh"}) {
			t.Errorf("%q: %v, %q", odd, err, tokens)
		}
		config = Config{Gateways: []string{gateway}, Token: func() string { return odd }, Patience: -1}
		if _, err := client(t, config).Submit(t.Context(), "q", Submission{}); !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", odd, err)
		}
	}
	t.Setenv("LONGHAUL_TOKEN", "half secret")
	if _, err := NewClient(Config{}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// A proxy answered with JSON of its own and 200. Get returned an empty task, and Wait asked again at
// once, for ever.
func TestAnAnswerThatIsNotAGatewaysIsNone(t *testing.T) {
	for _, page := range []string{"<html>", "null", "[]", `{"error":"signed out"}`} {
		synctest.Test(t, func(t *testing.T) {
			requests := 0
			config := Config{Gateways: []string{"http://here"}, Transport: transport(func(*http.Request) (*http.Response, error) {
				body := page
				if requests++; requests%3 == 0 {
					body = `{"id":"1:0:-1","status":"completed"}`
				}
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
			})}
			reader := client(t, config)
			for _, read := range []func(context.Context, string, string) (*Task, error){reader.Get, reader.Wait} {
				if task, err := read(t.Context(), "q", "1:0:-1"); err != nil || task.Status != "completed" {
					t.Errorf("%s: %v, %v", page, task, err)
				}
			}
			if requests != 6 {
				t.Errorf("%s: %d requests", page, requests)
			}
			config.Patience = -1
			if task, err := client(t, config).Wait(t.Context(), "q", "1:0:-1"); err == nil {
				t.Errorf("%s: %v", page, task)
			}
		})
	}
}

func TestAnEndlessPatienceIsNoLimitAndAnOddPauseIsNone(t *testing.T) {
	pauses := []string{"nan", "inf", "1e400", "soon"}
	requests := 0
	config := Config{Gateways: []string{"http://here"}, Patience: math.MaxInt64, Transport: transport(func(*http.Request) (*http.Response, error) {
		requests++
		if requests > len(pauses) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(stored))}, nil
		}
		header := http.Header{"Retry-After": {pauses[requests-1]}}
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: header, Body: http.NoBody}, nil
	})}
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if _, err := client(t, config).Submit(t.Context(), "q", Submission{}); err != nil || time.Since(begun) > 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

func TestAResultIsWaitedFor(t *testing.T) {
	waits := 0
	gateway := serve(t, func(w http.ResponseWriter, sent *http.Request) {
		switch address, _ := url.QueryUnescape(sent.URL.Path); address {
		case "/v1/queues/q/tasks/1:0:-1/wait", "/v1/queues/q/tasks/1:1:-1/wait":
			status := map[bool]string{true: "completed", false: "failed"}[strings.Contains(address, "1:0:-1")]
			if waits++; waits == 1 {
				w.WriteHeader(http.StatusNoContent)
			} else {
				fmt.Fprintf(w, `{"id":"1:0:-1","status":%q,"reason":"torn","cause":"error"}`, status)
			}
		case "/v1/queues/q/tasks/1:0:-1/result":
			w.Header().Set("Content-Type", "application/octet-stream")
			fmt.Fprint(w, "done")
		default:
			refuse(w, http.StatusNotFound, "task_not_found")
		}
	})
	waiter := client(t, Config{Gateways: []string{gateway}})
	if result, err := waiter.Result(t.Context(), "q", "1:0:-1"); string(result) != "done" || err != nil || waits != 2 {
		t.Errorf("%q, %v, %d", result, err, waits)
	}
	_, err := waiter.Result(t.Context(), "q", "1:1:-1")
	var failed *TaskError
	if !errors.Is(err, ErrTaskFailed) || !errors.As(err, &failed) || failed.Task.Cause != "error" || !strings.Contains(err.Error(), "torn") {
		t.Error(err)
	}
	var refused *GatewayError
	if task, err := waiter.Get(t.Context(), "q", "1:2:-1"); task != nil || !errors.As(err, &refused) || refused.Code != "task_not_found" {
		t.Error(task, err)
	}
}
