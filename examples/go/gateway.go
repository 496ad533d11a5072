package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"time"
)

var client = http.Client{Timeout: 10 * time.Second}

// Gateway is one queue of a gateway of longhaul.
type Gateway struct {
	queue string
}

// Lease is a task that was leased to this worker.
type Lease struct {
	Lease      string            `json:"lease"`
	ID         string            `json:"task"`
	Attempt    int               `json:"attempt"`
	Properties map[string]string `json:"properties"`
	// The payload is text, or else in base64.
	Text       *string `json:"payload"`
	Bytes      []byte  `json:"payload_base64"`
	Checkpoint []byte  `json:"checkpoint_base64"`
	ExpiresAt  int64   `json:"expires_at"`
}

// Payload is what was submitted.
func (lease *Lease) Payload() []byte {
	if lease.Text != nil {
		return []byte(*lease.Text)
	}
	return lease.Bytes
}

// Report is what a worker says of its task.
type Report struct {
	Lease      string    `json:"lease"`
	Status     string    `json:"status"`
	Result     []byte    `json:"result_base64,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Fatal      bool      `json:"fatal,omitempty"`
	Progress   *Progress `json:"progress,omitempty"`
	Checkpoint []byte    `json:"checkpoint_base64,omitempty"`
}

// Progress is how far a task has come, in units of its own.
type Progress struct {
	Done    int    `json:"done"`
	Total   int    `json:"total"`
	Message string `json:"message,omitempty"`
}

// Answer is what the gateway answers to any of these. Without an answer its Status is 0.
type Answer struct {
	Status    int     `json:"-"`
	Leases    []Lease `json:"leases"`
	ExpiresAt int64   `json:"expires_at"`
	Now       int64   `json:"now"`
	Cancelled bool    `json:"cancelled"`
	Code      string  `json:"code"`
	Detail    string  `json:"detail"`
}

// TimeLeft is the time until a lease ends, by the gateway's clock alone: ours may differ.
func (answer *Answer) TimeLeft(expiresAt int64) time.Duration {
	return time.Duration(expiresAt-answer.Now) * time.Millisecond
}

func (gateway *Gateway) post(path string, body any) *Answer {
	unreachable := func(err error) *Answer {
		return &Answer{Code: "unreachable", Detail: err.Error()}
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return unreachable(err)
	}
	request, err := http.NewRequest(http.MethodPost, gateway.queue+path, bytes.NewReader(encoded))
	if err != nil {
		return unreachable(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if token := os.Getenv("LONGHAUL_TOKEN"); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return unreachable(err)
	}
	defer response.Body.Close()
	answer := &Answer{Status: response.StatusCode}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil && err != io.EOF {
		return unreachable(err)
	}
	return answer
}

// lease waits for a task. The gateway answers at once when there is one. The poll is short all the same: a signal must not end it, when it may just
// have got a task.
func (gateway *Gateway) lease(worker string, leaseTime float64) *Answer {
	wanted := map[string]any{"worker": worker, "wait": "2s", "lease_time": leaseTime}
	return gateway.post("/leases", wanted)
}

// report says something of a task.
func (gateway *Gateway) report(report Report) *Answer {
	return gateway.post("/leases:report", report)
}
