// Walks through NATS, JetStream and key-value buckets with NATS's own client, and prints what each check saw
// as a line of JSON. Times and random names are left out, so that two servers can be compared.
//
//     node walk.js 127.0.0.1:4222

import { connect, Empty, headers, nanos } from "@nats-io/transport-node";
import {
  AckPolicy, DeliverPolicy, jetstream, jetstreamManager,
} from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";

const servers = process.argv[2];
const nc = await connect({ servers, reconnect: false, timeout: 20_000 });
const js = jetstream(nc, { timeout: 20_000 });
const jsm = await jetstreamManager(nc, { timeout: 20_000 });
const text = (data) => new TextDecoder().decode(data);

let number = 0;
async function check(name, body) {
  number += 1;
  const own = `s${number}`;
  let seen;
  try {
    seen = await body(own);
  } catch (error) {
    seen = { error: error.name, code: error.code ?? null, message: error.message };
  }
  const plain = (_, value) => (typeof value === "bigint" ? Number(value) : value);
  console.log(JSON.stringify({ check: name, seen }, plain));
}

/** The first messages of a subscription. */
async function take(subscription, count) {
  const found = [];
  if (count === 0) return found;
  for await (const message of subscription) {
    found.push(message);
    if (found.length === count) break;
  }
  return found;
}
const shown = (message) => [message.subject, text(message.data)];

// --- subjects -------------------------------------------------------------------------------------------

await check("publish and subscribe", async (s) => {
  const subscription = nc.subscribe(s);
  nc.publish(s, "one");
  nc.publish(s, Empty);
  return (await take(subscription, 2)).map(shown);
});

await check("a star is one token", async (s) => {
  const subscription = nc.subscribe(`${s}.*.x`);
  for (const each of ["a.x", "a.b.x", "x", "b.x", "c.y"]) nc.publish(`${s}.${each}`, each);
  nc.publish(`${s}.end.x`, "end");
  return (await take(subscription, 3)).map(shown);
});

await check("a greater-than sign is the rest", async (s) => {
  const subscription = nc.subscribe(`${s}.>`);
  for (const each of [s, `${s}.a`, `${s}.a.b.c`]) nc.publish(each, each);
  return (await take(subscription, 2)).map(shown);
});

await check("unsubscribe after a number of messages", async (s) => {
  const subscription = nc.subscribe(s, { max: 2 });
  for (let i = 0; i < 5; i++) nc.publish(s, `${i}`);
  const found = [];
  for await (const message of subscription) found.push(shown(message));
  return [found, subscription.getProcessed(), subscription.isClosed()];
});

await check("a member of a queue group gets each message", async (s) => {
  let count = 0;
  const callback = () => { count += 1; };
  const members = [1, 2, 3].map(() => nc.subscribe(s, { queue: "q", callback }));
  for (let i = 0; i < 30; i++) nc.publish(s, `${i}`);
  await nc.flush();
  await nc.flush();
  members.forEach((each) => each.unsubscribe());
  return count;
});

await check("headers in order and of several values", async (s) => {
  const subscription = nc.subscribe(s);
  const own = headers();
  own.append("b", "1");
  own.append("a", "2");
  own.append("b", "3");
  nc.publish(s, "with", { headers: own });
  const [message] = await take(subscription, 1);
  return [message.headers.keys().sort(), message.headers.values("b"), message.headers.get("a")];
});

await check("request and reply", async (s) => {
  nc.subscribe(s, { callback: (_, message) => message.respond(`${message.string()}!`) });
  return text((await nc.request(s, "ping", { timeout: 20_000 })).data);
});

await check("request with an inbox of its own", async (s) => {
  nc.subscribe(s, { callback: (_, message) => message.respond(message.data) });
  return text((await nc.request(s, "ping", { timeout: 20_000, noMux: true })).data);
});

await check("nobody answers", async (s) => nc.request(s, "ping", { timeout: 20_000 }));

await check("many answers", async (s) => {
  for (let i = 0; i < 3; i++) {
    nc.subscribe(s, { callback: (_, message) => message.respond("x") });
  }
  const answers = await nc.requestMany(s, "ping", { strategy: "count", maxMessages: 3, maxWait: 20_000 });
  const found = [];
  for await (const each of answers) found.push(text(each.data));
  return found;
});

await check("publish beyond the largest payload", async (s) => {
  nc.publish(s, new Uint8Array(nc.info.max_payload + 1));
});

await check("drain of a subscription", async (s) => {
  const found = [];
  const subscription = nc.subscribe(s, { callback: (_, message) => found.push(text(message.data)) });
  for (let i = 0; i < 10; i++) nc.publish(s, `${i}`);
  await nc.flush();
  await subscription.drain();
  nc.publish(s, "late");
  await nc.flush();
  return found;
});

await check("drain of a connection", async (s) => {
  const other = await connect({ servers, reconnect: false });
  const found = [];
  other.subscribe(s, { callback: (_, message) => found.push(text(message.data)) });
  await other.flush();
  for (let i = 0; i < 5; i++) nc.publish(s, `${i}`);
  await nc.flush();
  await other.drain();
  return [found, other.isClosed()];
});

await check("no echo", async (s) => {
  const other = await connect({ servers, noEcho: true });
  const found = [];
  other.subscribe(s, { callback: (_, message) => found.push(text(message.data)) });
  await other.flush();
  other.publish(s, "own");
  await other.flush();
  nc.publish(s, "other's");
  await nc.flush();
  await other.flush();
  await other.close();
  return found;
});

await check("round trip", async () => (await nc.rtt()) >= 0);

// --- streams --------------------------------------------------------------------------------------------

const stream = async (s, more = {}) => {
  await jsm.streams.add({ name: s, subjects: [`${s}.>`], ...more });
  return s;
};
const configured = ["name", "subjects", "retention", "max_consumers", "max_msgs", "max_bytes", "max_age",
  "max_msg_size", "storage", "discard", "num_replicas", "duplicate_window", "max_msgs_per_subject"];
const pick = (object, names) => Object.fromEntries(names.map((name) => [name, object[name]]));

await check("a stream and its defaults", async (s) => {
  await stream(s);
  return pick((await jsm.streams.info(s)).config, configured);
});

await check("a stream twice is the same one", async (s) => {
  await stream(s);
  await stream(s);
  return (await jsm.streams.info(s)).state.messages;
});

await check("a stream with other subjects is taken", async (s) => {
  await stream(s);
  await jsm.streams.add({ name: s, subjects: [`${s}.other`] });
});

await check("subjects of another stream", async (s) => {
  await stream(s);
  await jsm.streams.add({ name: `${s}-two`, subjects: [`${s}.a`] });
});

await check("no such stream", async (s) => jsm.streams.info(s));

await check("publish returns sequences", async (s) => {
  await stream(s);
  const acks = [];
  for (let i = 0; i < 3; i++) acks.push(await js.publish(`${s}.a`, `${i}`));
  return acks.map((ack) => pick(ack, ["stream", "seq", "duplicate"]));
});

await check("publish to no stream", async (s) => js.publish(`${s}.a`, "x"));

await check("a message id twice", async (s) => {
  await stream(s);
  const one = await js.publish(`${s}.a`, "1", { msgID: "id" });
  const two = await js.publish(`${s}.a`, "2", { msgID: "id" });
  return [one.seq, one.duplicate, two.seq, two.duplicate];
});

for (const [name, expect] of [
  ["last sequence", { lastSequence: 7 }],
  ["stream name", { streamName: "other" }],
  ["last message id", { lastMsgID: "other" }],
  ["last sequence of the subject", { lastSubjectSequence: 9 }],
]) {
  await check(`expected ${name} is another`, async (s) => {
    await stream(s);
    await js.publish(`${s}.a`, "1", { msgID: "one" });
    await js.publish(`${s}.a`, "2", { expect });
  });
}

await check("expected values that hold", async (s) => {
  await stream(s);
  await js.publish(`${s}.a`, "1", { msgID: "one" });
  const expect = { lastSequence: 1, streamName: s, lastMsgID: "one", lastSubjectSequence: 1 };
  return (await js.publish(`${s}.a`, "2", { expect })).seq;
});

await check("messages by sequence and by subject", async (s) => {
  await stream(s);
  const own = headers();
  own.set("h", "v");
  await js.publish(`${s}.a`, "1", { headers: own });
  await js.publish(`${s}.b`, "2");
  await js.publish(`${s}.a`, "3");
  const at = await jsm.streams.getMessage(s, { seq: 1 });
  const last = await jsm.streams.getMessage(s, { last_by_subj: `${s}.a` });
  return [at.seq, at.subject, at.string(), at.header.get("h"), last.seq, last.string()];
});

await check("no message at a sequence", async (s) => {
  await stream(s);
  return jsm.streams.getMessage(s, { seq: 4 });
});

await check("a deleted message is gone and the others stay", async (s) => {
  await stream(s);
  for (let i = 0; i < 3; i++) await js.publish(`${s}.a`, `${i}`);
  const deleted = await jsm.streams.deleteMessage(s, 2, false);
  const { state } = await jsm.streams.info(s, { deleted_details: true });
  return [deleted, pick(state, ["messages", "first_seq", "last_seq", "deleted", "num_deleted"])];
});

await check("a message is erased", async (s) => {
  await stream(s);
  await js.publish(`${s}.a`, "1");
  return jsm.streams.deleteMessage(s, 1);
});

await check("purge", async (s) => {
  await stream(s);
  for (let i = 0; i < 6; i++) await js.publish(`${s}.${i % 2}`, `${i}`);
  const purged = [
    await jsm.streams.purge(s, { filter: `${s}.1` }),
    await jsm.streams.purge(s, { keep: 1 }),
    await jsm.streams.purge(s),
  ];
  const { state } = await jsm.streams.info(s);
  return [purged.map((each) => each.purged), pick(state, ["messages", "first_seq", "last_seq"])];
});

await check("subjects of a stream", async (s) => {
  await stream(s);
  for (const each of ["a", "b", "a", "c.d"]) await js.publish(`${s}.${each}`, "x");
  const { state } = await jsm.streams.info(s, { subjects_filter: ">" });
  return [state.num_subjects, Object.entries(state.subjects).sort()];
});

await check("at most so many messages of a subject", async (s) => {
  await stream(s, { max_msgs_per_subject: 2 });
  for (let i = 0; i < 5; i++) await js.publish(`${s}.a`, `${i}`);
  await js.publish(`${s}.b`, "x");
  const { state } = await jsm.streams.info(s);
  return pick(state, ["messages", "last_seq"]);
});

await check("a stream that is full refuses", async (s) => {
  await stream(s, { max_msgs: 2, discard: "new" });
  for (let i = 0; i < 3; i++) await js.publish(`${s}.a`, `${i}`);
});

await check("a message that is too large", async (s) => {
  await stream(s, { max_msg_size: 10 });
  await js.publish(`${s}.a`, "x".repeat(50));
});

await check("update of a stream", async (s) => {
  await stream(s);
  const updated = await jsm.streams.update(s, { subjects: [`${s}.>`, `${s}-more`], max_msgs: 10 });
  await js.publish(`${s}-more`, "x");
  return [updated.config.subjects, updated.config.max_msgs, (await jsm.streams.info(s)).state.messages];
});

await check("a stream is found by a subject", async (s) => {
  await stream(s);
  return [await jsm.streams.find(`${s}.a`)];
});

await check("names of streams", async (s) => {
  await stream(s);
  const found = [];
  for await (const each of jsm.streams.names(`${s}.>`)) found.push(each);
  return found;
});

await check("a deleted stream", async (s) => {
  await stream(s);
  return [await jsm.streams.delete(s), await jsm.streams.info(s).catch((error) => error.message)];
});

// --- consumers ------------------------------------------------------------------------------------------

const filled = async (s, count = 5, more = {}) => {
  await stream(s, more);
  for (let i = 0; i < count; i++) await js.publish(`${s}.${i % 2}`, `${i}`);
  return s;
};
const durable = async (s, more = {}) => {
  await jsm.consumers.add(s, { durable_name: "d", ack_policy: AckPolicy.Explicit, ...more });
  return js.consumers.get(s, "d");
};
const fetched = async (consumer, max, expires = 2_000) => {
  const found = [];
  for await (const message of await consumer.fetch({ max_messages: max, expires })) {
    found.push([message.seq, message.subject.split(".")[1], text(message.data), message.info.deliveryCount]);
    message.ack();
  }
  return found;
};
const settled = async (s) => {
  await nc.flush();
  const info = await jsm.consumers.info(s, "d");
  return [info.num_pending, info.num_ack_pending, info.num_redelivered, info.ack_floor.stream_seq];
};

await check("a consumer and its defaults", async (s) => {
  await filled(s);
  const { config } = await jsm.consumers.add(s, { durable_name: "d", ack_policy: AckPolicy.Explicit });
  return pick(config, ["durable_name", "ack_policy", "ack_wait", "deliver_policy", "max_deliver",
    "max_ack_pending", "replay_policy", "max_waiting"]);
});

await check("fetch and acknowledge", async (s) => {
  await filled(s);
  const consumer = await durable(s);
  return [await fetched(consumer, 3), await fetched(consumer, 2), await settled(s)];
});

await check("fetch of nothing ends with its time", async (s) => {
  await stream(s);
  return fetched(await durable(s), 5, 1_000);
});

await check("next", async (s) => {
  await filled(s);
  const consumer = await durable(s);
  const message = await consumer.next({ expires: 10_000 });
  const acked = await message.ackAck();
  return [message.seq, text(message.data), acked, await settled(s)];
});

for (const [name, policy] of [
  ["last", { deliver_policy: DeliverPolicy.Last }],
  ["last of each subject", { deliver_policy: DeliverPolicy.LastPerSubject, filter_subject: ">" }],
  ["by start sequence", { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: 4 }],
  ["by start time", { deliver_policy: DeliverPolicy.StartTime, opt_start_time: "2020-01-01T00:00:00Z" }],
]) {
  await check(`deliver policy ${name}`, async (s) => {
    await filled(s);
    const more = { ...policy, ...(policy.filter_subject ? { filter_subject: `${s}.>` } : {}) };
    const consumer = await durable(s, more);
    const { num_pending } = await consumer.info();
    return [num_pending, await fetched(consumer, num_pending)];
  });
}

await check("deliver policy new", async (s) => {
  await filled(s);
  const consumer = await durable(s, { deliver_policy: DeliverPolicy.New });
  await js.publish(`${s}.0`, "new");
  return fetched(consumer, 1);
});

await check("a filter", async (s) => {
  await filled(s);
  const consumer = await durable(s, { filter_subject: `${s}.1` });
  return [(await consumer.info()).num_pending, await fetched(consumer, 2)];
});

await check("nak brings a message again", async (s) => {
  await filled(s, 1);
  const consumer = await durable(s);
  (await consumer.next({ expires: 10_000 })).nak();
  const again = await consumer.next({ expires: 10_000 });
  again.ack();
  return [again.seq, again.redelivered, again.info.deliveryCount, await settled(s)];
});

await check("nak with a delay", async (s) => {
  await filled(s, 1);
  const consumer = await durable(s);
  const began = Date.now();
  (await consumer.next({ expires: 10_000 })).nak(500);
  const again = await consumer.next({ expires: 10_000 });
  return [Date.now() - began >= 450, again.info.deliveryCount];
});

await check("term ends a message", async (s) => {
  await filled(s, 2);
  const consumer = await durable(s);
  (await consumer.next({ expires: 10_000 })).term();
  return [await fetched(consumer, 1), await settled(s)];
});

await check("working keeps a message", async (s) => {
  await filled(s, 1);
  const consumer = await durable(s, { ack_wait: nanos(3_000) });
  const message = await consumer.next({ expires: 10_000 });
  for (let i = 0; i < 4; i++) {
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    message.working();
  }
  const again = await fetched(consumer, 1, 1_000);
  await message.ackAck();
  return [again, await settled(s)];
});

await check("a wait for an acknowledgement ends", async (s) => {
  await filled(s, 1);
  const consumer = await durable(s, { ack_wait: nanos(500) });
  await consumer.next({ expires: 10_000 });
  return fetched(consumer, 1, 20_000);
});

await check("delivered at most so often", async (s) => {
  await filled(s, 1);
  const consumer = await durable(s, { ack_wait: nanos(300), max_deliver: 2 });
  const counts = [];
  for (let i = 0; i < 2; i++) counts.push((await consumer.next({ expires: 10_000 })).info.deliveryCount);
  return [counts, await consumer.next({ expires: 1_500 })];
});

await check("an acknowledgement of all before", async (s) => {
  await filled(s);
  const consumer = await durable(s, { ack_policy: AckPolicy.All });
  const found = [];
  for await (const each of await consumer.fetch({ max_messages: 4, expires: 2_000 })) found.push(each);
  await found[2].ackAck();
  return [found.length, await settled(s)];
});

await check("no acknowledgements", async (s) => {
  await filled(s);
  const consumer = await durable(s, { ack_policy: AckPolicy.None });
  const found = [];
  for await (const each of await consumer.fetch({ max_messages: 5, expires: 2_000 })) found.push(each.seq);
  return [found, await settled(s)];
});

await check("consume goes on with new messages", async (s) => {
  await filled(s, 3);
  const consumer = await durable(s);
  const messages = await consumer.consume();
  const found = [];
  for await (const each of messages) {
    found.push([each.seq, text(each.data)]);
    each.ack();
    if (found.length === 3) await js.publish(`${s}.0`, "more");
    if (found.length === 4) break;
  }
  await messages.close();
  return found;
});

await check("consume with a callback over hundreds", async (s) => {
  await stream(s);
  for (let i = 0; i < 300; i++) nc.publish(`${s}.x`, `${i}`);
  await nc.flush();
  while ((await jsm.streams.info(s)).state.messages < 300);
  const consumer = await durable(s);
  const found = [];
  let done;
  const ended = new Promise((resolve) => { done = resolve; });
  const messages = await consumer.consume({
    max_messages: 20,
    callback: (each) => {
      found.push(text(each.data));
      each.ack();
      if (found.length === 300) done();
    },
  });
  await ended;
  await messages.close();
  return [found.every((each, i) => each === `${i}`), await settled(s)];
});

await check("an ordered consumer", async (s) => {
  await filled(s);
  const consumer = await js.consumers.get(s);
  const found = [];
  for await (const each of await consumer.fetch({ max_messages: 5, expires: 2_000 })) {
    found.push([each.seq, text(each.data)]);
  }
  return found;
});

await check("an ordered consumer with a filter", async (s) => {
  await filled(s);
  const consumer = await js.consumers.get(s, { filter_subjects: [`${s}.1`] });
  const found = [];
  for await (const each of await consumer.fetch({ max_messages: 2, expires: 2_000 })) {
    found.push([each.seq, text(each.data)]);
  }
  return found;
});

await check("a push consumer", async (s) => {
  await filled(s);
  const deliver_subject = `deliver.${s}`;
  const subscription = nc.subscribe(deliver_subject);
  await jsm.consumers.add(s, { durable_name: "d", ack_policy: AckPolicy.None, deliver_subject });
  return (await take(subscription, 5)).map(shown);
});

await check("a push consumer with a queue group", async (s) => {
  await filled(s, 6);
  const deliver_subject = `deliver.${s}`;
  const found = [];
  const callback = (_, message) => { found.push(text(message.data)); message.respond("+ACK"); };
  for (let i = 0; i < 2; i++) nc.subscribe(deliver_subject, { queue: "q", callback });
  await jsm.consumers.add(s, {
    durable_name: "d", ack_policy: AckPolicy.Explicit, deliver_subject, deliver_group: "q",
  });
  while ((await settled(s))[3] < 6);
  return [found.sort(), await settled(s)];
});

await check("names of consumers", async (s) => {
  await filled(s);
  await durable(s);
  await jsm.consumers.add(s, { durable_name: "e", ack_policy: AckPolicy.Explicit });
  const found = [];
  for await (const each of jsm.consumers.list(s)) found.push(each.name);
  return found.sort();
});

await check("no such consumer", async (s) => {
  await stream(s);
  return js.consumers.get(s, "none");
});

await check("a deleted consumer", async (s) => {
  await filled(s);
  await durable(s);
  return [await jsm.consumers.delete(s, "d"), await jsm.consumers.info(s, "d").catch((error) => error.message)];
});

await check("a durable consumer goes on for another client", async (s) => {
  await filled(s);
  const first = await fetched(await durable(s), 2);
  const other = await connect({ servers });
  const consumer = await jetstream(other).consumers.get(s, "d");
  const second = [];
  await nc.flush();
  for await (const each of await consumer.fetch({ max_messages: 3, expires: 2_000 })) {
    second.push(each.seq);
    await each.ackAck();
  }
  await other.close();
  return [first.length, second];
});

// --- key-value buckets ----------------------------------------------------------------------------------

const kvm = new Kvm(js);
const entry = (each) => each && [each.key, text(each.value), each.revision, each.operation];

await check("put and get", async (s) => {
  const kv = await kvm.create(s);
  const revisions = [await kv.put("a", "1"), await kv.put("b", "2"), await kv.put("a", "3")];
  return [revisions, entry(await kv.get("a")), entry(await kv.get("b")), await kv.get("none")];
});

await check("create where there is one", async (s) => {
  const kv = await kvm.create(s);
  await kv.create("a", "1");
  await kv.create("a", "2");
});

await check("create after a delete", async (s) => {
  const kv = await kvm.create(s);
  await kv.create("a", "1");
  await kv.delete("a");
  return [await kv.create("a", "2"), entry(await kv.get("a"))];
});

await check("update of another revision", async (s) => {
  const kv = await kvm.create(s);
  const revision = await kv.put("a", "1");
  await kv.update("a", "2", revision);
  await kv.update("a", "3", revision);
});

await check("delete and purge", async (s) => {
  const kv = await kvm.create(s, { history: 5 });
  for (const each of ["1", "2"]) { await kv.put("a", each); await kv.put("b", each); }
  await kv.delete("a");
  await kv.purge("b");
  const found = [];
  for (const key of ["a", "b"]) for await (const each of await kv.history({ key })) found.push(entry(each));
  return [entry(await kv.get("a")), entry(await kv.get("b")), found];
});

await check("history", async (s) => {
  const kv = await kvm.create(s, { history: 3 });
  for (let i = 0; i < 5; i++) await kv.put("a", `${i}`);
  const found = [];
  for await (const each of await kv.history({ key: "a" })) found.push(entry(each));
  return found;
});

await check("keys", async (s) => {
  const kv = await kvm.create(s);
  for (const each of ["a", "b", "c.d"]) await kv.put(each, "x");
  await kv.delete("b");
  const found = [];
  for await (const each of await kv.keys()) found.push(each);
  return found.sort();
});

await check("watch", async (s) => {
  const kv = await kvm.create(s);
  await kv.put("a", "1");
  const watch = await kv.watch();
  const found = [];
  for await (const each of watch) {
    found.push(entry(each));
    if (found.length === 1) await kv.put("b", "2");
    if (found.length === 2) await kv.delete("a");
    if (found.length === 3) break;
  }
  watch.stop();
  return found;
});

await check("watch of keys, updates only", async (s) => {
  const kv = await kvm.create(s);
  await kv.put("a.1", "old");
  const watch = await kv.watch({ key: "a.*", include: "updates" });
  const found = [];
  setTimeout(async () => { await kv.put("b.1", "other"); await kv.put("a.2", "new"); }, 300);
  for await (const each of watch) {
    found.push(entry(each));
    break;
  }
  watch.stop();
  return found;
});

await check("status of a bucket", async (s) => {
  const kv = await kvm.create(s, { history: 4, ttl: 60_000, max_bytes: 1_000_000 });
  await kv.put("a", "1");
  const status = await kv.status();
  return pick(status, ["bucket", "values", "history", "ttl", "replicas"]);
});

await check("keys that are not allowed", async (s) => {
  const kv = await kvm.create(s);
  await kv.put("a b", "1");
});

await check("a bucket that is gone", async (s) => {
  const kv = await kvm.create(s);
  return [await kv.destroy(), await jsm.streams.info(`KV_${s}`).catch((error) => error.message)];
});

await nc.close();
