// The readable form of openapi.json: paths, fields, refusals, and a command to try each.

import { get, keepToken } from "./api.js";
import { byId, make, setProperties } from "./dom.js";

const MAX_DEPTH = 6;

async function start() {
  let description;
  try {
    description = await get("openapi.json");
  } catch (error) {
    byId("token-form").hidden = error.status !== 401;
    byId("fault").hidden = error.status === 401;
    byId("fault").textContent = error.message;
    if (error.status === 401) byId("token").focus();
    return;
  }
  byId("token-form").hidden = true;
  byId("fault").hidden = true;
  const operations = Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  );
  byId("paths").replaceChildren(...operations.map((each) => make("li", {}, make("a", { href: `#${idOf(each)}` }, title(each)), ` ${summary(each)}`)));
  byId("operations").replaceChildren(...operations.map((each) => section(each, description)));
  document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

const idOf = ({ path, method }) => `${method}${path}`.replace(/\W+/g, "-").toLowerCase();
const title = ({ path, method }) => make("code", {}, `${method} ${path}`);
const summary = ({ operation }) => operation.description ?? operation.summary ?? "";

function section(each, description) {
  const { path, method, operation } = each;
  const part = make("section", { class: "panel", id: idOf(each), tabindex: "-1" }, make("h2", {}, title(each)), make("p", {}, summary(each)));
  const sent = jsonSchema(operation.requestBody);
  const answered = jsonSchema(operation.responses?.["200"]);
  const example = sent && (settle(sent, description).examples ?? [])[0];
  part.append(make("h3", {}, "Try it"), make("pre", { tabindex: "0" }, make("code", {}, curl(method, path, example))));
  if (sent) part.append(make("h3", {}, "What you send"), fieldTable(sent, description, { isRequest: true }));
  if (answered) part.append(make("h3", {}, "What you get"), fieldTable(answered, description, { isRequest: false }));
  const refusals = Object.entries(operation.responses ?? {}).filter(([status]) => status !== "200");
  if (refusals.length) {
    const items = refusals.map(([status, { description: text }]) => make("li", {}, make("code", {}, status), ` ${text}`));
    part.append(make("h3", {}, "Refusals"), make("ul", { class: "refusals" }, ...items));
  }
  return part;
}

const jsonSchema = (content) => content?.content?.["application/json"]?.schema;

function curl(method, path, example) {
  const lines = [`curl -s ${location.origin}${path}`];
  if (method !== "GET") lines[0] += ` -X ${method} -H 'Content-Type: application/json'`;
  if (example !== undefined) lines.push(`     -d '${JSON.stringify(example).replaceAll("'", "'\\''")}'`);
  return lines.join(" \\\n");
}

/** Follow a reference to where the schema stands. */
function settle(schema, description) {
  if (!schema.$ref) return schema;
  const parts = schema.$ref.replace("#/", "").split("/");
  return parts.reduce((place, part) => place[part], description);
}

function fieldTable(schema, description, { isRequest }) {
  const rows = fields(schema, description, "", 0).map(({ name, depth, type, text, required }) => {
    const need = isRequest ? [make("td", {}, required ? "yes" : "no")] : [];
    return make("tr", {}, make("th", { scope: "row" }, setProperties(make("code", {}, name), { depth })), make("td", {}, type), ...need, make("td", {}, text));
  });
  if (!rows.length) return make("p", { class: "hint" }, "JSON.");
  const heads = ["Field", "Type", ...(isRequest ? ["Needed"] : []), "Meaning"];
  const head = make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, name)));
  const name = isRequest ? "Fields you send" : "Fields you get";
  return make("div", { class: "scroll-x", tabindex: "0", role: "group", "aria-label": name }, make("table", { "aria-label": name }, make("thead", {}, head), make("tbody", {}, ...rows)));
}

/** List the fields of a schema, then those inside them; [] is each of a list, * each of an object. */
function fields(schema, description, prefix, depth) {
  const settled = settle(schema, description);
  const required = new Set(settled.required ?? []);
  return Object.entries(settled.properties ?? {}).flatMap(([key, value]) => {
    const inner = innermost(value, description);
    const own = { name: `${prefix}${key}`, depth, type: typeName(value, description), text: meaning(value, inner.schema), required: required.has(key) };
    if (depth >= MAX_DEPTH) return [own];
    return [own, ...fields(inner.schema, description, inner.suffix && `${inner.suffix}.`, depth + 1)];
  });
}

/** Return what a field holds in the end, and how that is written behind its name. */
function innermost(schema, description, suffix = "") {
  const settled = settle(schema, description);
  const [only, ...others] = options(settled);
  if (only && !others.length) return innermost(only, description, suffix);
  if (settled.items) return innermost(settled.items, description, `${suffix}[]`);
  if (settled.additionalProperties?.type || settled.additionalProperties?.$ref) {
    return innermost(settled.additionalProperties, description, `${suffix}.*`);
  }
  return { schema: settled, suffix };
}

const options = (schema) => (schema.anyOf ?? []).filter(({ type }) => type !== "null");

function typeName(schema, description) {
  const settled = settle(schema, description);
  if (settled.anyOf) return settled.anyOf.map((each) => typeName(each, description)).join(" or ");
  if (settled.type === "array") return `list of ${typeName(settled.items ?? {}, description)}`;
  if (settled.additionalProperties) return "object, one entry per name";
  return settled.type ?? "any";
}

function meaning(schema, inner) {
  const parts = [(schema.description ?? inner.description ?? "").replaceAll("`", "")];
  const [{ minimum: low, maximum: high }] = options(schema).concat(schema);
  if (low !== undefined && high !== undefined) parts.push(`From ${low} to ${high}.`);
  if (schema.default !== undefined && schema.default !== null) parts.push(`By default ${JSON.stringify(schema.default)}.`);
  return parts.filter(Boolean).join(" ");
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value.trim());
  start();
});
start();
