// Registers schemas, and reads and writes values with two clients of schema registries.
// Arguments: the registry's address, then an Avro and a JSON value in hexadecimal that Kalda wrote.
// Prints what each client wrote, and what it read of Kalda's.

const { SchemaRegistry, SchemaType } = require("@kafkajs/confluent-schema-registry");
const confluent = require("@confluentinc/schemaregistry");

const [url, avroOfKalda, jsonOfKalda] = process.argv.slice(2);
const value = { id: 7, item: "tea" };
const avro = JSON.stringify({
  type: "record",
  name: "Order",
  namespace: "shop",
  fields: [{ name: "id", type: "long" }, { name: "item", type: "string" }],
});
const json = JSON.stringify({
  title: "Order",
  type: "object",
  properties: { id: { type: "integer" }, item: { type: "string" } },
  required: ["id"],
});

async function kafkajs() {
  const registry = new SchemaRegistry({ host: url });
  const one = await registry.register({ type: SchemaType.AVRO, schema: avro }, { subject: "js-avro-value" });
  const two = await registry.register({ type: SchemaType.JSON, schema: json }, { subject: "js-json-value" });
  return {
    avro: (await registry.encode(one.id, value)).toString("hex"),
    json: (await registry.encode(two.id, value)).toString("hex"),
    read: [
      await registry.decode(Buffer.from(avroOfKalda, "hex")),
      await registry.decode(Buffer.from(jsonOfKalda, "hex")),
    ],
  };
}

async function confluents() {
  const client = new confluent.SchemaRegistryClient({ baseURLs: [url] });
  const kind = confluent.SerdeType.VALUE;
  const options = { useLatestVersion: true };
  await client.register("c-avro-value", { schema: avro, schemaType: "AVRO" });
  await client.register("c-json-value", { schema: json, schemaType: "JSON" });
  const written = {
    avro: await new confluent.AvroSerializer(client, kind, options).serialize("c-avro", value),
    json: await new confluent.JsonSerializer(client, kind, options).serialize("c-json", value),
  };
  return {
    avro: written.avro.toString("hex"),
    json: written.json.toString("hex"),
    read: [
      await new confluent.AvroDeserializer(client, kind, {}).deserialize("k", Buffer.from(avroOfKalda, "hex")),
      await new confluent.JsonDeserializer(client, kind, {}).deserialize("k", Buffer.from(jsonOfKalda, "hex")),
    ],
  };
}

async function main() {
  console.log(JSON.stringify({ kafkajs: await kafkajs(), confluent: await confluents() }));
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
