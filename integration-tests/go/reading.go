package main

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Steps about readers, and going back.
var reading = []step{
	{"reader", reader},
	{"reader of batches", readerOfBatches},
	{"consumer seeks", consumerSeeks},
	{"compacted", compacted},
	{"table view", tableView},
}

func (s *stage) read(options pulsar.ReaderOptions) pulsar.Reader {
	return must(s.client.CreateReader(options))
}

func next(reader pulsar.Reader) string {
	limit, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	return string(must(reader.Next(limit)).Payload())
}

func all(reader pulsar.Reader) []string {
	var values []string
	for reader.HasNext() {
		values = append(values, next(reader))
	}
	return values
}

// What a new reader finds.
func (s *stage) found(options pulsar.ReaderOptions) []string {
	reader := s.read(options)
	defer reader.Close()
	return all(reader)
}

func reader(s *stage) {
	topic := s.topic("t")
	from := func(id pulsar.MessageID) pulsar.ReaderOptions {
		return pulsar.ReaderOptions{Topic: topic, StartMessageID: id}
	}
	s.line("empty", s.found(from(pulsar.EarliestMessageID())))
	ids := s.send(topic, "a", "b")
	time.Sleep(20 * time.Millisecond)
	middle := time.Now()
	time.Sleep(20 * time.Millisecond)
	ids = append(ids, s.send(topic, "c", "d")...)
	reader := s.read(from(pulsar.EarliestMessageID()))
	s.line("earliest", all(reader))
	check(reader.SeekByTime(middle))
	s.line("by time", all(reader))
	reader.Close()
	reader = s.read(from(pulsar.EarliestMessageID()))
	check(reader.Seek(ids[1]))
	s.line("by id", all(reader))
	reader.Close()
	s.line("started behind an id", s.found(from(ids[2])))
	inclusive := from(ids[2])
	inclusive.StartMessageIDInclusive = true
	s.line("started at an id", s.found(inclusive))
	latest := s.read(from(pulsar.LatestMessageID()))
	defer latest.Close()
	s.line("latest", all(latest))
	s.send(topic, "e")
	s.line("latest", next(latest))
}

func readerOfBatches(s *stage) {
	topic := s.topic("t")
	ids := s.sendBatch(pulsar.ProducerOptions{Topic: topic}, "a", "b", "c", "d")
	s.line("behind the second", s.found(pulsar.ReaderOptions{Topic: topic, StartMessageID: ids[1]}))
	s.line("behind the last", s.found(pulsar.ReaderOptions{Topic: topic, StartMessageID: ids[3]}))
}

func consumerSeeks(s *stage) {
	topic := s.topic("t")
	consumer := s.consumer(topic)
	defer consumer.Close()
	ids := s.send(topic, "a", "b", "c")
	take(consumer, 3)
	// Earliest and latest are refused by the client itself, and after an id it throws away what comes before it for ever.
	check(consumer.SeekByTime(time.UnixMilli(1)))
	s.line("by time", take(consumer, 3))
	check(consumer.Seek(ids[1]))
	s.line("by id", take(consumer, 1))
	s.quiet(consumer)
}

// The last one is a tombstone, which this client can write and not read: it throws away what is empty. It says
// of each message how large it was before it was compressed.
func keyed(s *stage, topic string, schema pulsar.Schema) {
	producer := must(s.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, Schema: schema}))
	defer producer.Close()
	for _, pair := range []string{"a=1", "b=1", "a=2", "c=1", "b=2", "c="} {
		must(producer.Send(context.Background(), &pulsar.ProducerMessage{Key: pair[:1], Payload: []byte(pair[2:])}))
	}
}

func compacted(s *stage) {
	topic := s.topic("t")
	keyed(s, topic, nil)
	s.compact(topic)
	from := pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID(), ReadCompacted: true}
	reader := s.read(from)
	defer reader.Close()
	s.line("compacted", all(reader))
	s.send(topic, "later")
	s.line("compacted", next(reader))
	s.line("more:", reader.HasNext())
}

func tableView(s *stage) {
	topic := s.topic("t")
	schema := pulsar.NewStringSchema(nil)
	keyed(s, topic, schema)
	s.compact(topic)
	value := ""
	view := must(s.client.CreateTableView(pulsar.TableViewOptions{
		Topic: topic, Schema: schema, SchemaValueType: reflect.TypeOf(&value),
	}))
	defer view.Close()
	shown := func() map[string]string {
		contents := map[string]string{}
		for key, value := range view.Entries() {
			if text, is := value.(*string); is {
				contents[key] = *text
			} else {
				contents[key] = fmt.Sprint(value)
			}
		}
		return contents
	}
	s.line(shown())
	producer := must(s.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: schema}))
	defer producer.Close()
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Key: "d", Payload: []byte("1")}))
	until("d", func() bool { return view.ContainsKey("d") })
	s.line(shown())
}
