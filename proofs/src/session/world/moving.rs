//! Movements without any actor: bytes, time and faults.

use super::*;

impl World {
    // The network.

    pub(super) fn move_something(&mut self) {
        let conns: Vec<u64> = self.conns.keys().copied().collect();
        let Some(&conn) = self.random.choice(&conns) else { return };
        let pace = self.conns[&conn].pace;
        let pace = self.random.usize(1..=pace);
        match self.random.u8(0..4) {
            0 => drop(self.push_up(conn, pace)),
            1 => drop(self.arrive_up(conn, pace)),
            2 => drop(self.push_down(conn, pace)),
            _ => drop(self.arrive_down(conn, pace)),
        }
        self.forget_dead();
    }

    /// Moves everything, one connection at a time. Returns whether anything moved.
    pub(super) fn move_everything(&mut self, pace: usize) -> bool {
        let mut moved = false;
        let conns: Vec<u64> = self.conns.keys().copied().collect();
        for conn in conns {
            let pace = if self.is_calm { pace } else { pace.min(self.conns[&conn].pace) };
            while self.push_up(conn, pace)
                | self.arrive_up(conn, pace)
                | self.push_down(conn, pace)
                | self.arrive_down(conn, pace)
            {
                moved = true;
                if !self.is_calm {
                    break;
                }
            }
        }
        self.forget_dead();
        moved
    }

    pub(super) fn forget_dead(&mut self) {
        if let Some(conn) = self.conns.get(&0) {
            self.first = (conn.up.passed(), conn.down.passed());
        }
        self.conns.retain(|_, it| !it.is_left || it.is_served);
    }

    pub(super) fn push_up(&mut self, number: u64, pace: usize) -> bool {
        let now = self.moment();
        let Some(conn) = self.conns.get_mut(&number).filter(|it| !it.is_left) else { return false };
        let before = conn.outbox.len();
        conn.machine.transmit(&mut conn.outbox, now);
        let seed = self.plan.seed;
        assert!(conn.outbox.len() < OUT_BYTES_MAX, "seed {seed}: {} encoded", conn.outbox.len());
        conn.taps.0.extend_from_slice(&conn.outbox[before..]);
        self.ledger.watch_up(number, &mut conn.taps.0);
        let moved = conn.up.send(&mut conn.outbox, pace);
        // Writing may end a producer or a consumer.
        self.drain(number);
        moved
    }

    pub(super) fn arrive_up(&mut self, number: u64, pace: usize) -> bool {
        let Some(conn) = self.conns.get_mut(&number).filter(|it| it.is_served) else {
            return false;
        };
        match conn.up.arrive(pace) {
            Arrival::Bytes(bytes) => {
                (conn.heard, conn.is_asked) = (self.now, false);
                self.broker.receive(number, &bytes, EPOCH_MS + self.now);
                self.collect();
            }
            Arrival::End => self.leave_broker(number),
            Arrival::Cut => self.reset(number),
            Arrival::Nothing => return false,
        }
        true
    }

    pub(super) fn push_down(&mut self, number: u64, pace: usize) -> bool {
        let Some(conn) = self.conns.get_mut(&number) else { return false };
        let moved = conn.down.send(&mut conn.served, pace);
        let is_over = conn.is_served && self.broker.is_closing(number) && conn.served.is_empty();
        if is_over {
            self.leave_broker(number);
        }
        moved || is_over
    }

    pub(super) fn arrive_down(&mut self, number: u64, pace: usize) -> bool {
        let now = self.moment();
        let Some(conn) = self.conns.get_mut(&number).filter(|it| !it.is_left) else { return false };
        match conn.down.arrive(pace) {
            Arrival::Bytes(bytes) => {
                conn.inbox.extend_from_slice(&bytes);
                conn.machine.receive(&mut conn.inbox, now);
            }
            Arrival::End => conn.machine.fail(broken("the broker closed the connection")),
            Arrival::Cut => self.reset(number),
            Arrival::Nothing => return false,
        }
        self.drain(number);
        true
    }

    /// Ends the broker's side of a connection.
    pub(super) fn leave_broker(&mut self, number: u64) {
        self.broker.disconnect(number);
        if let Some(conn) = self.conns.get_mut(&number) {
            conn.is_served = false;
            conn.down.end();
        }
    }

    /// Takes the broker's output.
    pub(super) fn collect(&mut self) {
        for (number, conn) in self.conns.iter_mut().filter(|(_, it)| it.is_served) {
            let bytes = self.broker.take_output(*number);
            if !bytes.is_empty() {
                conn.taps.1.extend_from_slice(&bytes);
                self.ledger.watch_down(*number, &mut conn.taps.1);
                conn.served.extend_from_slice(&bytes);
            }
        }
    }

    // The broker and the time.

    pub(super) fn advance_broker(&mut self) {
        self.broker.advance(EPOCH_MS + self.now);
        self.collect();
    }

    /// Writes the composed entries, or confirms the written ones.
    pub(super) fn write_broker(&mut self) {
        if !self.broker.write(&mut self.journal).expect("a disk that works") {
            self.broker.confirm();
            self.collect();
        }
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now += ms;
        let (now, moment, seed) = (self.now, self.moment(), self.plan.seed);
        for (number, conn) in self.conns.iter_mut().filter(|it| !it.1.is_left) {
            if conn.machine.timeout().is_some_and(|at| at <= moment) {
                conn.machine.tick(moment);
                let next = conn.machine.timeout();
                assert!(
                    next.is_none_or(|at| at > moment),
                    "seed {seed}: connection {number} is due again at once"
                );
            }
        }
        let mut silent = Vec::new();
        for (number, conn) in self.conns.iter_mut().filter(|it| it.1.is_served) {
            let silence = now - conn.heard;
            if silence >= BROKER_KEEP_ALIVE_MS * 2 {
                silent.push(*number);
            } else if silence >= BROKER_KEEP_ALIVE_MS && !conn.is_asked {
                conn.is_asked = true;
                self.broker.ping(*number);
            }
        }
        silent.into_iter().for_each(|number| self.leave_broker(number));
        self.advance_broker();
        self.drain_all();
        self.forget_dead();
    }

    // Faults.

    pub(super) fn go_wrong(&mut self) {
        let conns: Vec<u64> = self.conns.keys().copied().collect();
        let Some(&number) = self.random.choice(&conns) else { return };
        self.ledger.figures.faults += 1;
        match self.random.u8(0..20) {
            0..=3 => self.reset(number),
            4..=5 => self.leave_broker(number),
            6..=8 => {
                let Some(conn) = self.conns.get_mut(&number) else { return };
                let which = self.random.u8(0..3);
                if which != 1 {
                    conn.up.go_deaf();
                }
                if which != 0 {
                    conn.down.go_deaf();
                }
            }
            9..=10 => {
                let pace = self.random.usize(1..200);
                if let Some(conn) = self.conns.get_mut(&number) {
                    conn.pace = pace;
                }
            }
            11..=13 => {
                let topic = self.random.usize(0..self.topics.len());
                self.ledger.figures.restarts += 1;
                self.broker.unload(&self.topics[topic]);
                self.collect();
            }
            14..=17 => {
                let topic = self.random.usize(0..self.topics.len());
                self.ledger.figures.compactions += 1;
                self.broker.compact(&self.topics[topic]);
            }
            _ => self.restart(),
        }
    }

    /// Breaks the connection: only a part of the bytes in flight arrives.
    pub(super) fn reset(&mut self, number: u64) {
        let Some(conn) = self.conns.get_mut(&number) else { return };
        let (up, down) = (conn.up.under_way(), conn.down.under_way());
        let is_cut = conn.up.cut_at.is_some() || conn.down.cut_at.is_some();
        // A cut at a certain byte is exact.
        let kept = |most: usize, random: &mut Rng| if is_cut { 0 } else { random.usize(0..=most) };
        conn.up.break_off(kept(up, &mut self.random));
        conn.down.break_off(kept(down, &mut self.random));
        conn.served.clear();
    }

    /// The power fails. Some clients notice; the connections of the others go deaf.
    pub(super) fn restart(&mut self) {
        self.ledger.figures.restarts += 1;
        // The old process must be gone before the new one opens the disk.
        let spare = SimulatedStorage::new(0);
        let none = SteppedBroker::open(&spare, EPOCH_MS).expect("a broker on an empty disk");
        drop(std::mem::replace(&mut self.broker, none));
        self.storage.crash();
        self.broker = SteppedBroker::open(&self.storage, EPOCH_MS + self.now).expect("a log");
        for conn in self.conns.values_mut() {
            conn.is_served = false;
            conn.served.clear();
            if self.random.bool() {
                let kept = self.random.usize(0..=conn.down.under_way());
                conn.down.break_off(kept);
            } else {
                conn.up.go_deaf();
                conn.down.go_deaf();
            }
        }
        self.forget_dead();
    }
}
