#include "tools/process/serve_prefix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace kvcheck {
namespace {

constexpr std::pair<std::string_view, int64_t PrefixCounters::*> kCounterFields[] = {
    {"entries", &PrefixCounters::entries},
    {"bytes", &PrefixCounters::bytes},
    {"budget_bytes", &PrefixCounters::budget_bytes},
    {"blocks_total", &PrefixCounters::blocks_total},
    {"blocks_free", &PrefixCounters::blocks_free},
    {"blocks_cached", &PrefixCounters::blocks_cached},
    {"blocks_held", &PrefixCounters::blocks_held},
    {"lookups", &PrefixCounters::lookups},
    {"hits", &PrefixCounters::hits},
    {"hit_tokens", &PrefixCounters::hit_tokens},
};

int64_t NumberUnder(const WireValue& value, std::string_view key) {
  return value.Get(key).AsInteger(fmt::format("'{}'", key));
}

std::string TextUnder(const WireValue& value, std::string_view key) {
  return std::string(value.Get(key).AsText(fmt::format("'{}'", key)));
}

std::optional<std::string> TextIfUnder(const WireValue& value, std::string_view key) {
  const std::optional<WireValue> text = value.Find(key);
  if (!text) return std::nullopt;
  return std::string(text->AsText(fmt::format("'{}'", key)));
}

bool FlagUnder(const WireValue& value, std::string_view key) {
  return value.Get(key).AsBool(fmt::format("'{}'", key));
}

std::vector<int32_t> TokensUnder(const WireValue& value) {
  std::vector<int32_t> tokens;
  for (const int64_t token : value.Get("tokens").AsIntegers("'tokens'")) {
    tokens.push_back(static_cast<int32_t>(token));
  }
  return tokens;
}

PrefixSetup SetupUnder(const WireValue& value) {
  const WireValue setup = value.Get("setup");
  // As the text of a case, which is checked as a whole.
  std::string text = fmt::format(
      "prefix block={} tokens={} entries={} layers={} hkv={} dk={} dv={} x={} quantize_from={} "
      "window={} disk={}",
      NumberUnder(setup, "block_tokens"), NumberUnder(setup, "capacity_tokens"),
      NumberUnder(setup, "max_entries"), NumberUnder(setup, "layers"),
      NumberUnder(setup, "kv_heads"), NumberUnder(setup, "k_dim"), NumberUnder(setup, "v_dim"),
      TextUnder(setup, "x"), NumberUnder(setup, "quantize_from"), NumberUnder(setup, "window"),
      value.Find("folder") ? "yes" : "no");
  const std::string k = TextUnder(setup, "k");
  const std::string v = TextUnder(setup, "v");
  if (k != TextUnder(setup, "x") || v != k) text += fmt::format(" k={} v={}", k, v);
  return ParsePrefixCase(text + " data=tokens:0").setup;
}

void PutPlain(std::string_view key, const PrefixVectors& vectors, int64_t tokens, bool is_key,
              WireWriter& writer) {
  const int64_t dim = is_key ? vectors.k_dim : vectors.v_dim;
  const int64_t extents[] = {vectors.layers, vectors.kv_heads, tokens, dim};
  const auto bytes = static_cast<size_t>(dim) * SizeInBytes(vectors.dtype);
  writer.Key(key);
  std::byte* to = writer.Array(vectors.dtype, extents).data();
  for (int64_t layer = 0; layer < vectors.layers; ++layer) {
    for (int64_t head = 0; head < vectors.kv_heads; ++head) {
      for (int64_t token = 0; token < tokens; ++token, to += bytes) {
        std::memcpy(to, is_key ? vectors.K(layer, head, token) : vectors.V(layer, head, token),
                    bytes);
      }
    }
  }
}

}  // namespace

std::span<const std::pair<std::string_view, int64_t PrefixCounters::*>> PrefixCounterFields() {
  return kCounterFields;
}

int PrefixServer::RequestIn(const WireValue& value, std::string_view key, bool open) const {
  const int64_t request = NumberUnder(value, key);
  if (request < 0 || request >= kRequests) {
    throw WireError(fmt::format("'{}' {} is no request", key, request));
  }
  if (open && !open_[static_cast<size_t>(request)]) {
    throw WireError(fmt::format("request {} is not open", request));
  }
  return static_cast<int>(request);
}

void PrefixServer::PutRows(const PrefixRows& rows, int64_t tokens, WireWriter& writer) {
  if (!rows.blocks.empty()) {
    writer.Key("blocks");
    writer.Integers(rows.blocks);
  }
  if (rows.vectors.k == nullptr && tokens > 0) return;
  PrefixVectors vectors = rows.vectors;
  if (tokens == 0) vectors = DenseVectors(setup_, 0, nullptr, nullptr);
  PutPlain("k", vectors, tokens, true, writer);
  PutPlain("v", vectors, tokens, false, writer);
  if (rows.retained == nullptr || tokens == 0) return;
  const int64_t extents[] = {vectors.layers, tokens};
  writer.Key("retained");
  const std::span<std::byte> to = writer.Array(DType::kBool, extents);
  std::memcpy(to.data(), rows.retained, to.size());
}

OpResult PrefixServer::Start(const WireValue& value, WireWriter& writer) {
  setup_ = SetupUnder(value);
  open_ = {};
  const std::string folder = TextIfUnder(value, "folder").value_or("");
  PrefixStarted started;
  // A process that begins on a folder of an earlier one has to look at it.
  const bool again = FlagUnder(value, "again");
  const OpResult result = again && started_
                              ? implementation_->Restart(setup_, /*orderly=*/true, &started)
                              : implementation_->Start(setup_, folder, &started);
  started_ = true;
  if (!result.ok()) return result;
  writer.Key("block_tokens");
  writer.Integer(started.block_tokens);
  writer.Key("capacity_tokens");
  writer.Integer(started.capacity_tokens);
  writer.Key("holds_requests");
  writer.Bool(started.holds_requests);
  return result;
}

OpResult PrefixServer::Open(const WireValue& value, WireWriter& writer) {
  const int request = RequestIn(value, "request", false);
  const std::vector<int32_t> tokens = TokensUnder(value);
  const WireValue who = value.Get("who");
  PrefixIdentity identity;
  identity.model = TextIfUnder(who, "model");
  identity.salt = TextIfUnder(who, "salt");
  identity.adapter = TextIfUnder(who, "adapter");
  identity.version = NumberUnder(who, "version");
  identity.image = TextIfUnder(who, "image");
  PrefixHit hit;
  const OpResult result =
      implementation_->Open(request, tokens, identity, FlagUnder(value, "all"), &hit);
  if (!result.ok()) return result;
  open_[static_cast<size_t>(request)] = true;
  writer.Key("hit");
  writer.Integer(hit.tokens);
  if (hit.tier_is_known) {
    writer.Key("tier");
    writer.Text(Name(hit.tier));
  }
  const bool fits = hit.tokens >= 0 && hit.tokens <= hit.rows.vectors.tokens;
  PutRows(hit.rows, fits ? hit.tokens : hit.rows.vectors.tokens, writer);
  return result;
}

OpResult PrefixServer::Write(const WireValue& value, WireWriter& writer) {
  const int request = RequestIn(value, "request", true);
  const std::vector<int32_t> tokens = TokensUnder(value);
  const WireArray k = value.Get("k").AsArray("'k'");
  const WireArray v = value.Get("v").AsArray("'v'");
  if (k.rank != 4 || v.rank != 4) throw WireError("'k' or 'v' has not 4 axes");
  PrefixSetup shape = setup_;
  shape.x = k.dtype;
  shape.layers = k.extents[0];
  shape.kv_heads = k.extents[1];
  shape.k_dim = k.extents[3];
  shape.v_dim = v.extents[3];
  bool full = false;
  const OpResult result = implementation_->Write(
      request, tokens, DenseVectors(shape, k.extents[2], k.bytes.data(), v.bytes.data()), &full);
  if (result.ok() && full) {
    writer.Key("full");
    writer.Bool(true);
  }
  return result;
}

// Requests that are one call.
OpResult PrefixServer::Call(std::string_view name, const WireValue& value, WireWriter& writer) {
  const auto key = [&] {
    const std::string text = TextUnder(value, "key");
    if (text.size() != 2 || text[0] != 's') throw WireError("'key' is not s0 to s3");
    return text[1] - '0';
  };
  if (name == "read") {
    PrefixRows rows;
    const OpResult result = implementation_->Read(RequestIn(value, "request", true), &rows);
    if (result.ok()) PutRows(rows, rows.vectors.tokens, writer);
    return result;
  }
  if (name == "close") {
    const int request = RequestIn(value, "request", true);
    const OpResult result = implementation_->Close(request, FlagUnder(value, "keep"));
    if (result.ok()) open_[static_cast<size_t>(request)] = false;
    return result;
  }
  if (name == "fork") {
    const int out = RequestIn(value, "out", false);
    const OpResult result = implementation_->Fork(RequestIn(value, "request", true), out);
    if (result.ok()) open_[static_cast<size_t>(out)] = true;
    return result;
  }
  if (name == "trim_to") {
    return implementation_->TrimTo(RequestIn(value, "request", true), NumberUnder(value, "tokens"));
  }
  if (name == "evict") return implementation_->Evict(NumberUnder(value, "tokens"));
  if (name == "clear") return implementation_->Clear();
  if (name == "epoch") return implementation_->Epoch();
  if (name == "settle") return implementation_->Settle();
  if (name == "save") return implementation_->Save(key());
  return implementation_->Load(key());
}

bool PrefixServer::Answer(std::string_view name, const WireValue& value, WireWriter& writer) {
  constexpr std::string_view kCalls[] = {"read",  "close", "fork",   "trim_to", "evict",
                                         "clear", "epoch", "settle", "save",    "load"};
  const bool is_call = std::find(std::begin(kCalls), std::end(kCalls), name) != std::end(kCalls);
  OpResult result;
  if (name == "start") {
    result = Start(value, writer);
  } else if (!started_) {
    throw WireError("nothing was started");
  } else if (name == "open") {
    result = Open(value, writer);
  } else if (name == "write") {
    result = Write(value, writer);
  } else if (name == "observe") {
    PrefixCounters counters;
    implementation_->Observe(&counters);
    for (const auto& [key, member] : kCounterFields) {
      if (counters.*member == PrefixCounters::kUnknown) continue;
      writer.Key(key);
      writer.Integer(counters.*member);
    }
  } else if (is_call) {
    result = Call(name, value, writer);
  } else {
    return false;
  }
  if (!result.ok()) {
    writer.Key(result.status == OpStatus::kRefused ? "refused" : "unsupported");
    writer.Text(result.message);
  }
  if (const std::string why = implementation_->Unwritten(); result.ok() && !why.empty()) {
    writer.Key("no_room");
    writer.Text(why);
  }
  return true;
}

}  // namespace kvcheck
