package main

import (
	"context"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Steps about what is sent.
var producing = []step{
	{"plain", plain},
	{"batched", batched},
	{"compressed", compressed},
	{"chunked", chunked},
	{"delayed", delayed},
	{"schemas", schemas},
	{"access modes", accessModes},
	{"deduplicated", deduplicated},
}

func plain(s *stage) {
	topic := s.topic("t")
	consumer := s.consumer(topic)
	defer consumer.Close()
	producer := s.producer(topic)
	defer producer.Close()
	for _, message := range []*pulsar.ProducerMessage{
		{Payload: []byte("a"), Key: "k", Properties: map[string]string{"p": "1"}, EventTime: time.UnixMilli(7)},
		{Payload: []byte("b"), OrderingKey: "o"},
		{Payload: []byte("c")},
	} {
		id := must(producer.Send(context.Background(), message))
		seen := receive(consumer)
		check(consumer.Ack(seen))
		same := seen.ID().EntryID() == id.EntryID() && seen.ID().LedgerID() == id.LedgerID()
		s.line(text(seen), "key:", seen.Key(), "ordering:", seen.OrderingKey(), seen.Properties(), "same id:", same)
	}
	s.quiet(consumer)
}

func batched(s *stage) {
	topic := s.topic("t")
	consumer := s.consumer(topic)
	defer consumer.Close()
	ids := s.sendBatch(pulsar.ProducerOptions{Topic: topic}, "a", "b", "c", "d")
	for _, id := range ids {
		seen := receive(consumer)
		check(consumer.Ack(seen))
		same := seen.ID().EntryID() == id.EntryID() && seen.ID().BatchIdx() == id.BatchIdx()
		s.line(text(seen), "index", id.BatchIdx(), "of", id.BatchSize(), "same id:", same)
	}
	s.line("one entry:", ids[0].EntryID() == ids[3].EntryID())
	s.quiet(consumer)
}

func compressed(s *stage) {
	topic := s.topic("t")
	long := strings.Repeat("compress me ", 1000)
	consumer := s.consumer(topic)
	defer consumer.Close()
	for name, kind := range []pulsar.CompressionType{pulsar.NoCompression, pulsar.LZ4, pulsar.ZLib, pulsar.ZSTD, pulsar.SNAPPY} {
		options := pulsar.ProducerOptions{Topic: topic, CompressionType: kind}
		s.sendBatch(options, long, long+"1")
		options.DisableBatching = true
		producer := must(s.client.CreateProducer(options))
		must(producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(long + "2")}))
		producer.Close()
		values := take(consumer, 3)
		s.line(name, values[0] == long && values[1] == long+"1" && values[2] == long+"2")
	}
}

func chunked(s *stage) {
	topic := s.topic("t")
	large := strings.Repeat("0123456789", 250_000)
	consumer := s.consumer(topic)
	defer consumer.Close()
	producer := must(s.client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 1 << 20,
	}))
	defer producer.Close()
	for _, value := range []string{large, "small"} {
		must(producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(value)}))
	}
	values := take(consumer, 2)
	s.line("large:", values[0] == large, "then", values[1])
	s.quiet(consumer)
}

func delayed(s *stage) {
	topic := s.topic("t")
	consumer := s.subscribe(options(topic, pulsar.Shared))
	defer consumer.Close()
	producer := s.producer(topic)
	defer producer.Close()
	// Pulsar may be early by a second, its tick. On a busy machine two sends take seconds.
	due := time.Now().Add(5 * time.Second).Truncate(time.Millisecond)
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("late"), DeliverAt: due}))
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("now")}))
	s.line(take(consumer, 1))
	s.line(take(consumer, 1), "early:", time.Now().Before(due.Add(-time.Second)))
}

type order struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

const orderSchema = `{"type":"record","name":"Order","fields":[{"name":"item","type":"string"},{"name":"count","type":"int"}]}`

func schemas(s *stage) {
	topic := s.topic("t")
	schema := pulsar.NewJSONSchema(orderSchema, nil)
	producer := must(s.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: schema, DisableBatching: true}))
	defer producer.Close()
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Value: order{"tea", 3}}))
	with := options(topic, pulsar.Exclusive)
	with.Schema = schema
	consumer := s.subscribe(with)
	defer consumer.Close()
	message := receive(consumer)
	check(consumer.Ack(message))
	var seen order
	check(message.GetSchemaValue(&seen))
	s.line(seen, "version", message.SchemaVersion())
	answer := s.call("GET", "schemas/"+strings.TrimPrefix(topic, "persistent://")+"/schema", "")
	s.line("JSON:", strings.Contains(answer, `"type":"JSON"`), "first:", strings.Contains(answer, `"version":0`))
}

func accessModes(s *stage) {
	topic := s.topic("t")
	open := func(mode pulsar.ProducerAccessMode) (pulsar.Producer, error) {
		return s.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, ProducerAccessMode: mode})
	}
	first := must(open(pulsar.ProducerAccessModeExclusive))
	_, err := open(pulsar.ProducerAccessModeExclusive)
	s.refused("a second exclusive one", err)
	first.Close()
	second := must(open(pulsar.ProducerAccessModeExclusive))
	id, err := second.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("b")})
	s.line("the next one sends:", id != nil, err)
	second.Close()
}

func deduplicated(s *stage) {
	topic := s.topic("t")
	s.callTopic("PUT", topic, "", "")
	s.callTopic("POST", topic, "/deduplicationEnabled", "true")
	until("deduplication", func() bool {
		return strings.Contains(s.callTopic("GET", topic, "/internalStats", ""), "pulsar.dedup")
	})
	consumer := s.consumer(topic)
	defer consumer.Close()
	named := pulsar.ProducerOptions{Topic: topic, DisableBatching: true, Name: "named"}
	send := func(producer pulsar.Producer, value string, sequence int64) {
		message := &pulsar.ProducerMessage{Payload: []byte(value), SequenceID: &sequence}
		must(producer.Send(context.Background(), message))
	}
	producer := must(s.client.CreateProducer(named))
	send(producer, "a", 1)
	send(producer, "again", 1)
	send(producer, "b", 5)
	producer.Close()
	producer = must(s.client.CreateProducer(named))
	s.line("goes on after", producer.LastSequenceID())
	send(producer, "old", 4)
	send(producer, "c", 6)
	producer.Close()
	s.line(take(consumer, 3))
	s.quiet(consumer)
}
