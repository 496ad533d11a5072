package longhaul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// granter is a gateway with one task, whose lease lasts 30 s. keepAlive answers the keep-alives.
type granter struct {
	keepAlive func(w http.ResponseWriter)
	// The worker with the instance of the first request is told to drain, a second after its lease.
	drains   bool
	instance any
	granted  time.Time

	mutex     sync.Mutex
	isGranted bool
	// Answers a request instead, if it returns true.
	refuses func(w http.ResponseWriter, body map[string]any) bool
	// Returns the outcome of each confirmation, in place of RESULT_OK.
	confirm func() string
	// Ends the worker.
	stop context.CancelFunc
	// The reports other than keep-alives, and the last checkpoint of all reports.
	reports    []map[string]any
	checkpoint any
}

// RoundTrip answers without a network, so that tests run in simulated time.
func (g *granter) RoundTrip(sent *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	g.serve(answer, sent)
	if answer.Code == http.StatusNoContent {
		time.Sleep(time.Second)
	}
	return answer.Result(), nil
}

func (g *granter) serve(w http.ResponseWriter, sent *http.Request) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	var body map[string]any
	if err := json.NewDecoder(sent.Body).Decode(&body); err != nil {
		panic(err)
	}
	if checkpoint, isThere := body["checkpoint_base64"]; isThere {
		g.checkpoint = checkpoint
	}
	switch {
	case g.refuses != nil && g.refuses(w, body):
	case strings.HasSuffix(sent.URL.Path, "/leases") && !g.isGranted:
		g.isGranted, g.instance, g.granted = true, body["instance"], time.Now()
		fmt.Fprint(w, `{"leases":[{"lease":"l","task":"1:0:-1","epoch":1,"attempt":1,"payload":"p","expires_at":31000}],"now":1000}`)
	case strings.HasSuffix(sent.URL.Path, "/leases") && g.drains && body["instance"] == g.instance && time.Since(g.granted) >= time.Second:
		refuse(w, http.StatusConflict, "worker_drained")
	case strings.HasSuffix(sent.URL.Path, "/leases"):
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(sent.URL.Path, "/leases:confirm"):
		outcome := resultOK
		if g.confirm != nil {
			outcome = g.confirm()
		}
		fmt.Fprintf(w, `{"outcomes":[{"outcome":%q}],"now":1000}`, outcome)
	case body["status"] == "IN_PROGRESS":
		g.keepAlive(w)
	default:
		g.reports = append(g.reports, body)
		fmt.Fprint(w, `{"cancelled":false,"now":1000}`)
	}
}

func keptAlive(w http.ResponseWriter) {
	fmt.Fprint(w, `{"cancelled":false,"now":1000,"expires_at":31000}`)
}

// work runs a worker until its processor has ended, and returns the reports and the log.
func (g *granter) work(t *testing.T, worker Worker) (reports []map[string]any, lines string) {
	t.Helper()
	// A task that is lost ends no worker.
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Hour)
	g.stop = stop
	process := worker.Process
	worker.Process = func(ctx context.Context, lease *Lease) ([]byte, error) {
		if worker.Drain == 0 {
			defer stop()
		} else {
			stop()
		}
		return process(ctx, lease)
	}
	worker.Client = client(t, Config{Gateways: []string{"http://here"}, Transport: g})
	worker.Queue = "q"
	var mutex sync.Mutex
	worker.Logf = func(format string, args ...any) {
		mutex.Lock()
		defer mutex.Unlock()
		lines += fmt.Sprintf(format+"\n", args...)
	}
	worker.Run(ctx)
	return g.reports, lines
}

// waits waits for the end of its context, and returns the cause.
func waits(ctx context.Context, _ *Lease) ([]byte, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestALeaseWithoutKeepAlivesCancelsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var cause error
		gateway := &granter{keepAlive: func(w http.ResponseWriter) { refuse(w, http.StatusServiceUnavailable, "draining") }}
		reports, lines := gateway.work(t, Worker{Process: func(ctx context.Context, lease *Lease) ([]byte, error) {
			_, cause = waits(ctx, lease)
			if took := time.Since(begun); took != 30*time.Second {
				t.Errorf("after %v", took)
			}
			return nil, ctx.Err()
		}})
		if !errors.Is(cause, ErrLeaseLost) {
			t.Fatalf("%v\n%s", cause, lines)
		}
		// It claims no result: the gateway decides whether the lease is over.
		if len(reports) != 1 || reports[0]["status"] != "RELEASED" {
			t.Fatal(reports)
		}
	})
}

func TestALeaseThatAnotherWorkerHasIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		gateway := &granter{keepAlive: func(w http.ResponseWriter) { refuse(w, http.StatusConflict, "stale_lease_id") }}
		reports, lines := gateway.work(t, Worker{Process: func(ctx context.Context, lease *Lease) ([]byte, error) {
			_, cause = waits(ctx, lease)
			return []byte("late"), nil
		}})
		if !errors.Is(cause, ErrLeaseLost) || len(reports) != 0 || !strings.Contains(lines, "\nlost 1:0:-1: stale_lease_id") {
			t.Fatalf("%v, %v\n%s", cause, reports, lines)
		}
	})
}

func TestALeaseIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := 0
		gateway := &granter{keepAlive: func(w http.ResponseWriter) {
			if missing++; missing%3 == 0 {
				keptAlive(w)
			} else {
				refuse(w, http.StatusServiceUnavailable, "draining")
			}
		}}
		reports, lines := gateway.work(t, Worker{Process: func(ctx context.Context, lease *Lease) ([]byte, error) {
			return lease.Payload, sleep(ctx, time.Hour)
		}})
		if len(reports) != 1 || reports[0]["status"] != "SUCCEEDED" || reports[0]["result"] != "p" {
			t.Fatalf("%v\n%s", reports, lines)
		}
	})
}

// A keep-alive was told to wait for 20 s. The processor returned, and its end was sent after the pause,
// when the lease was over.
func TestAnEndDoesNotWaitForThePauseOfAKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		gateway := &granter{keepAlive: func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "20")
			refuse(w, http.StatusServiceUnavailable, "draining")
		}}
		reports, lines := gateway.work(t, Worker{Process: func(ctx context.Context, lease *Lease) ([]byte, error) {
			lease.SetProgress(1, 3, "")
			// The next keep-alive begins with the pause.
			return nil, sleep(ctx, 5*time.Second)
		}})
		if took := time.Since(begun); took > 10*time.Second || len(reports) != 1 || reports[0]["progress"] == nil {
			t.Fatalf("%v after %v\n%s", reports, took, lines)
		}
		if strings.Count(lines, "keep-alive of") != 1 {
			t.Fatal(lines)
		}
	})
}

// A balancer answered the final report with a page and a Retry-After. The worker waited for 30 s, the
// lease ended, and the result was lost.
func TestALeaseOutlivesEveryRetryAfter(t *testing.T) {
	for isPage, limit := range map[bool]time.Duration{true: keepAliveEvery, false: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var last time.Time
			silent, refusals := map[any]time.Duration{}, map[any]int{}
			// The first request of each kind is refused.
			gateway := &granter{keepAlive: keptAlive, refuses: func(w http.ResponseWriter, body map[string]any) bool {
				if body["worker"] != nil {
					return false
				}
				kind := body["status"]
				if refusals[kind]++; refusals[kind] > 1 {
					silent[kind] = max(silent[kind], time.Since(last))
				}
				last = time.Now()
				w.Header().Set("Retry-After", "60")
				if isPage && refusals[kind] == 1 {
					w.WriteHeader(http.StatusServiceUnavailable)
				} else if refusals[kind] == 1 {
					refuse(w, http.StatusServiceUnavailable, "draining")
				}
				return refusals[kind] == 1
			}}
			reports, lines := gateway.work(t, Worker{Process: func(ctx context.Context, _ *Lease) ([]byte, error) {
				return nil, sleep(ctx, time.Minute)
			}})
			if len(reports) != 1 || reports[0]["status"] != "SUCCEEDED" || len(silent) != 3 {
				t.Fatalf("%v, %v\n%s", reports, silent, lines)
			}
			for kind, pause := range silent {
				if pause > limit {
					t.Errorf("%v after %v\n%s", kind, pause, lines)
				}
			}
		})
	}
}

// The broker was away for a moment. A worker took UNKNOWN for a loss, and its task was given back after
// the whole lease time.
func TestAConfirmationIsRepeatedWhileAnOutcomeIsUnknown(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			confirmations := 0
			gateway := &granter{keepAlive: keptAlive}
			gateway.confirm = func() string {
				if ends {
					gateway.stop()
				}
				if confirmations++; confirmations < 4 {
					return unknownOutcome
				}
				return resultOK
			}
			reports, lines := gateway.work(t, Worker{Process: func(context.Context, *Lease) ([]byte, error) { return []byte("fine"), nil }})
			expected, count := "SUCCEEDED", 4
			if ends {
				expected, count = "RELEASED", 1
			}
			if len(reports) != 1 || reports[0]["status"] != expected || confirmations != count {
				t.Fatalf("%v after %d confirmations\n%s", reports, confirmations, lines)
			}
		})
	}
}

func TestACancelEndsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gateway := &granter{keepAlive: func(w http.ResponseWriter) { fmt.Fprint(w, `{"cancelled":true,"now":1000,"expires_at":31000}`) }}
		reports, lines := gateway.work(t, Worker{Process: waits})
		if len(reports) != 1 || reports[0]["reason"] != "cancelled" || !strings.Contains(lines, "\ncancelled 1:0:-1") {
			t.Fatalf("%v\n%s", reports, lines)
		}
	})
}

func TestADrainGivesTheTaskBackWithItsCheckpoint(t *testing.T) {
	for _, isDeaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			end := make(chan struct{})
			defer close(end)
			process := func(ctx context.Context, lease *Lease) ([]byte, error) {
				_, err := waits(ctx, lease)
				if saved := lease.SaveCheckpoint([]byte("7")); saved != nil {
					return nil, saved
				}
				if isDeaf {
					<-end
				}
				return nil, err
			}
			gateway := &granter{keepAlive: keptAlive}
			reports, lines := gateway.work(t, Worker{Drain: time.Minute, Process: process})
			took := time.Since(begun)
			expected := time.Minute
			if isDeaf {
				expected += grace
			}
			if len(reports) != 1 || reports[0]["status"] != "RELEASED" || took != expected {
				t.Fatalf("%v after %v\n%s", reports, took, lines)
			}
			if gateway.checkpoint != "Nw==" {
				t.Fatalf("%v\n%s", gateway.checkpoint, lines)
			}
		})
	}
}

func TestTheEndsOfAnAttempt(t *testing.T) {
	torn := errors.New("torn")
	for name, it := range map[string]struct {
		end      func() error
		expected string
	}{
		"an error":        {func() error { return torn }, "map[lease:l reason:torn status:FAILED]"},
		"a wrapped Fatal": {func() error { return fmt.Errorf("page 3: %w", Fatal(torn)) }, "map[fatal:true lease:l reason:page 3: torn status:FAILED]"},
		"RetryAfter":      {func() error { return RetryAfter(0, torn) }, "map[lease:l reason:torn retry_after:0ms status:FAILED]"},
		"GiveBack":        {func() error { return GiveBack(time.Minute) }, "map[after:60000ms lease:l status:RELEASED]"},
		"a panic":         {func() error { panic(torn) }, "map[lease:l reason:panic: torn status:FAILED]"},
		"a success":       {func() error { return nil }, "map[lease:l result: status:SUCCEEDED]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			process := func(context.Context, *Lease) ([]byte, error) { return nil, it.end() }
			reports, lines := (&granter{keepAlive: keptAlive}).work(t, Worker{Process: process})
			if len(reports) != 1 || fmt.Sprint(reports[0]) != it.expected {
				t.Fatalf("%s: %v\n%s", name, reports, lines)
			}
		})
	}
}

// A processor used a package for tests, whose FailNow ends the goroutine. Nothing was reported, and the
// worker kept the lease and the slot for ever.
func TestAProcessorThatEndsItsGoroutineFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		process := func(context.Context, *Lease) ([]byte, error) {
			runtime.Goexit()
			return nil, nil
		}
		reports, lines := (&granter{keepAlive: keptAlive}).work(t, Worker{Process: process})
		if len(reports) != 1 || reports[0]["status"] != "FAILED" || reports[0]["reason"] != "the processor called runtime.Goexit" {
			t.Fatalf("%v\n%s", reports, lines)
		}
	})
}

// A worker had a Poll of a minute, and requests waited for 30 s. Another one had a negative LeaseTime:
// the gateway refused each of its requests, and it ran nothing.
func TestAFieldThatCannotMeanItselfIsRefused(t *testing.T) {
	process := func(context.Context, *Lease) ([]byte, error) { return nil, nil }
	for field, change := range map[string]func(*Worker){
		"Client is nil":                func(w *Worker) { w.Client = nil },
		"Queue is empty":               func(w *Worker) { w.Queue = "" },
		"Process is nil":               func(w *Worker) { w.Process = nil },
		"Concurrency is -1":            func(w *Worker) { w.Concurrency = -1 },
		"LeaseTime is -1s":             func(w *Worker) { w.LeaseTime = -time.Second },
		"LeaseTime is 1ms":             func(w *Worker) { w.LeaseTime = time.Millisecond },
		"LeaseTime is 2562047h47m16.8": func(w *Worker) { w.LeaseTime = math.MaxInt64 },
		"Poll is -1s":                  func(w *Worker) { w.Poll = -time.Second },
		"Poll is 1m0s":                 func(w *Worker) { w.Poll = time.Minute },
	} {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, "longhaul: Worker."+field) {
					t.Errorf("%s: %s", field, said)
				}
			}()
			ctx, stop := context.WithCancel(t.Context())
			stop()
			worker := Worker{Client: client(t, Config{}), Queue: "q", Process: process, Logf: t.Logf}
			change(&worker)
			worker.Run(ctx)
		})
	}
}

func TestAWorkerThatIsToldToDrainKeepsItsTaskAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gateway := &granter{drains: true, keepAlive: keptAlive}
		reports, lines := gateway.work(t, Worker{Process: func(ctx context.Context, lease *Lease) ([]byte, error) {
			return lease.Payload, sleep(ctx, 9*time.Second)
		}})
		if len(reports) != 1 || reports[0]["status"] != "SUCCEEDED" || strings.Count(lines, "told to drain\n") != 1 {
			t.Fatalf("%v\n%s", reports, lines)
		}
	})
}

// One answer of a proxy to the final report, or a 401 after a token was rotated, threw hours of work
// away.
func TestOnlyAGatewaysCodeIsAVerdict(t *testing.T) {
	for _, status := range []int{302, 400, 401, 403, 404, 408, 409, 413, 421, 431, 500, 200} {
		for _, isPage := range []bool{true, false} {
			if !isPage && status != 401 && status != 403 {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				refusals := 0
				gateway := &granter{keepAlive: keptAlive, refuses: func(w http.ResponseWriter, body map[string]any) bool {
					if body["status"] != "SUCCEEDED" {
						return false
					}
					if refusals++; refusals > 3 {
						return false
					}
					if isPage {
						w.Header().Set("Content-Type", "text/html")
						w.WriteHeader(status)
						fmt.Fprint(w, "<html>")
					} else {
						refuse(w, status, "token_unknown")
					}
					return true
				}}
				reports, lines := gateway.work(t, Worker{Process: func(context.Context, *Lease) ([]byte, error) { return []byte("kept"), nil }})
				if len(reports) != 1 || reports[0]["result"] != "kept" {
					t.Fatalf("%d: %v\n%s", status, reports, lines)
				}
			})
		}
	}
}

// A log line was refused, and the end and the checkpoint that were sent with it were lost.
func TestAnEndStandsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gateway := &granter{keepAlive: keptAlive, refuses: func(w http.ResponseWriter, body map[string]any) bool {
			if body["status"] == "FAILED" && body["log"] != nil {
				refuse(w, http.StatusUnprocessableEntity, "json_unfit")
				return true
			}
			return false
		}}
		reports, lines := gateway.work(t, Worker{Process: func(_ context.Context, lease *Lease) ([]byte, error) {
			lease.Log("caf\xe9 " + strings.Repeat("x", 6_000_000))
			lease.SetProgress(-1, 3, "")
			_ = lease.SaveCheckpoint([]byte("7"))
			return nil, errors.New("caf\xe9 " + strings.Repeat("x", 6_000_000))
		}})
		if len(reports) != 1 || gateway.checkpoint != "Nw==" || reports[0]["fatal"] != nil {
			t.Fatalf("%.300v\n%.300s", reports, lines)
		}
		if reason := reports[0]["reason"].(string); len(reason) != reasonBytes || !strings.HasPrefix(reason, "caf\uFFFD xxx") {
			t.Fatalf("%d bytes: %.20s", len(reason), reason)
		}
	})
}
