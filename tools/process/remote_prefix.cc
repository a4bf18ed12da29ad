#include "tools/process/remote_prefix.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "tools/process/serve_prefix.h"

namespace kvcheck {
namespace {

void PutNumberOf(WireWriter& writer, std::string_view key, int64_t value) {
  writer.Key(key);
  writer.Integer(value);
}

void PutTextOf(WireWriter& writer, std::string_view key, const std::optional<std::string>& text) {
  writer.Key(key);
  text ? writer.Text(*text) : writer.Nil();
}

void PutIdsOf(WireWriter& writer, std::span<const int32_t> tokens) {
  const std::vector<int64_t> ids(tokens.begin(), tokens.end());
  writer.Key("tokens");
  writer.Integers(ids);
}

// (layers, heads, tokens, dim).
void PutRowsOf(WireWriter& writer, std::string_view key, const PrefixVectors& vectors,
               bool is_key) {
  const int64_t dim = is_key ? vectors.k_dim : vectors.v_dim;
  const int64_t extents[] = {vectors.layers, vectors.kv_heads, vectors.tokens, dim};
  const auto bytes = static_cast<size_t>(dim) * SizeInBytes(vectors.dtype);
  writer.Key(key);
  std::byte* to = writer.Array(vectors.dtype, extents).data();
  for (int64_t layer = 0; layer < vectors.layers; ++layer) {
    for (int64_t head = 0; head < vectors.kv_heads; ++head) {
      for (int64_t token = 0; token < vectors.tokens; ++token, to += bytes) {
        std::memcpy(to, is_key ? vectors.K(layer, head, token) : vectors.V(layer, head, token),
                    bytes);
      }
    }
  }
}

int64_t CountUnder(const WireValue& answer, std::string_view key) {
  return answer.Get(key).AsCount(fmt::format("'{}'", key));
}

}  // namespace

PrefixCapabilities RemotePrefix::GetCapabilities() const {
  const Greeting& greeting = process_->greeting();
  PrefixCapabilities capabilities;
  capabilities.name = greeting.name;
  capabilities.version = greeting.version;
  capabilities.prefix_profile = greeting.prefix_profile;
  capabilities.profile = greeting.profile;
  capabilities.spaces = greeting.prefix_spaces;
  capabilities.foreign = true;
  capabilities.warnings = greeting.warnings;
  return capabilities;
}

OpResult RemotePrefix::StatusOf(const WireValue& answer) {
  if (const std::optional<WireValue> refused = answer.Find("refused")) {
    message_ = CleanText(refused->AsText("'refused'"));
    return OpResult::Refuse(message_);
  }
  if (const std::optional<WireValue> unsupported = answer.Find("unsupported")) {
    message_ = CleanText(unsupported->AsText("'unsupported'"));
    return OpResult::Unsupported(message_);
  }
  return {};
}

template <typename F>
OpResult RemotePrefix::Finish(F on_ok) {
  if (kill_at_ > 0) {
    // 100 us, 200 us, 400 us, ...: from before it has read the request to some milliseconds later.
    const int64_t doublings = std::min<int64_t>(kill_at_ - 1, 6);
    kill_at_ = 0;
    process_->CallAndKill(std::chrono::microseconds(100 << doublings));
    throw PrefixKilled();
  }
  const WireValue answer = process_->Call();
  return process_->Interpret([&] {
    const OpResult result = StatusOf(answer);
    if (result.ok()) on_ok(answer);
    return result;
  });
}

OpResult RemotePrefix::Finish() {
  return Finish([](const WireValue&) {});
}

OpResult RemotePrefix::Begin(const PrefixSetup& setup, bool again, PrefixStarted* started) {
  setup_ = setup;
  kill_at_ = 0;
  WireWriter& writer = process_->Begin("start");
  writer.Key("kind");
  writer.Text("prefix");
  writer.Key("setup");
  writer.StartMap();
  for (const auto& [key, value] : {std::pair{"block_tokens", setup.block_tokens},
                                   {"capacity_tokens", setup.capacity_tokens},
                                   {"max_entries", setup.max_entries},
                                   {"layers", setup.layers},
                                   {"kv_heads", setup.kv_heads},
                                   {"k_dim", setup.k_dim},
                                   {"v_dim", setup.v_dim},
                                   {"quantize_from", setup.quantize_from},
                                   {"window", setup.window}}) {
    PutNumberOf(writer, key, value);
  }
  writer.Key("x");
  writer.Text(ShortName(setup.x));
  writer.Key("k");
  writer.Text(Print(setup.K()));
  writer.Key("v");
  writer.Text(Print(setup.V()));
  writer.EndMap();
  PutTextOf(writer, "folder", folder_.empty() ? std::nullopt : std::optional<std::string>(folder_));
  writer.Key("again");
  writer.Bool(again);
  writer.Key("seed");
  writer.Unsigned(setup.data.seed);
  return Finish([&](const WireValue& answer) {
    started->block_tokens = CountUnder(answer, "block_tokens");
    started->capacity_tokens = CountUnder(answer, "capacity_tokens");
    if (started->block_tokens < 1) throw WireError("'block_tokens' is less than 1");
    const std::optional<WireValue> holds = answer.Find("holds_requests");
    started->holds_requests = !holds || holds->AsBool("'holds_requests'");
  });
}

OpResult RemotePrefix::Start(const PrefixSetup& setup, const std::string& folder,
                             PrefixStarted* started) {
  folder_ = folder;
  process_->ForgetNoRoom();
  return Begin(setup, /*again=*/false, started);
}

OpResult RemotePrefix::Restart(const PrefixSetup& setup, bool orderly, PrefixStarted* started) {
  process_->End(orderly);
  return Begin(setup, /*again=*/true, started);
}

WireWriter& RemotePrefix::BeginOf(std::string_view name, int request) {
  WireWriter& writer = process_->Begin(name);
  PutNumberOf(writer, "request", request);
  return writer;
}

void RemotePrefix::ReadRows(const WireValue& answer, int64_t tokens, PrefixRows* rows) {
  *rows = {};
  bytes_ = process_->answer_bytes();
  blocks_.clear();
  if (const std::optional<WireValue> blocks = answer.Find("blocks")) {
    blocks_ = blocks->AsIntegers("'blocks'");
    rows->blocks = blocks_;
  }
  const std::optional<WireValue> k = answer.Find("k");
  if (!k) return;  // ids alone
  const WireArray k_array = k->AsArray("'k'");
  const WireArray v_array = answer.Get("v").AsArray("'v'");
  const bool is_there = k_array.rank == 4 && v_array.rank == 4 && k_array.dtype == v_array.dtype &&
                        std::equal(k_array.extents, k_array.extents + 3, v_array.extents);
  if (!is_there) throw WireError("'k' and 'v' are not (layers, kv_heads, tokens, dim) alike");
  PrefixSetup shape = setup_;
  shape.x = k_array.dtype;
  shape.layers = k_array.extents[0];
  shape.kv_heads = k_array.extents[1];
  shape.k_dim = k_array.extents[3];
  shape.v_dim = v_array.extents[3];
  rows->vectors =
      DenseVectors(shape, k_array.extents[2], k_array.bytes.data(), v_array.bytes.data());
  if (const std::optional<WireValue> retained = answer.Find("retained")) {
    const WireArray array = retained->AsArray("'retained'");
    const int64_t extents[] = {setup_.layers, tokens};
    if (array.dtype != DType::kBool || !array.HasExtents(extents)) {
      throw WireError("'retained' is not b8 (layers, tokens)");
    }
    rows->retained = reinterpret_cast<const uint8_t*>(array.bytes.data());
  }
}

OpResult RemotePrefix::Open(int request, std::span<const int32_t> prompt, const PrefixIdentity& who,
                            bool all, PrefixHit* hit) {
  WireWriter& writer = BeginOf("open", request);
  PutIdsOf(writer, prompt);
  writer.Key("who");
  writer.StartMap();
  PutTextOf(writer, "model", who.model);
  PutTextOf(writer, "salt", who.salt);
  PutTextOf(writer, "adapter", who.adapter);
  PutNumberOf(writer, "version", who.version);
  PutTextOf(writer, "image", who.image);
  writer.EndMap();
  writer.Key("all");
  writer.Bool(all);
  return Finish([&](const WireValue& answer) {
    hit->tokens = answer.Get("hit").AsInteger("'hit'");
    const std::optional<WireValue> tier = answer.Find("tier");
    hit->tier_is_known = tier.has_value();
    if (tier) {
      const std::string_view name = tier->AsText("'tier'");
      if (name != Name(PrefixTier::kMemory) && name != Name(PrefixTier::kDisk)) {
        throw WireError("'tier' is neither memory nor disk");
      }
      hit->tier = name == Name(PrefixTier::kDisk) ? PrefixTier::kDisk : PrefixTier::kMemory;
    }
    ReadRows(answer, hit->tokens, &hit->rows);
  });
}

OpResult RemotePrefix::Write(int request, std::span<const int32_t> tokens,
                             const PrefixVectors& vectors, bool* full) {
  WireWriter& writer = BeginOf("write", request);
  PutIdsOf(writer, tokens);
  PutRowsOf(writer, "k", vectors, true);
  PutRowsOf(writer, "v", vectors, false);
  return Finish([&](const WireValue& answer) {
    const std::optional<WireValue> said = answer.Find("full");
    *full = said && said->AsBool("'full'");
  });
}

OpResult RemotePrefix::Read(int request, PrefixRows* rows) {
  BeginOf("read", request);
  return Finish([&](const WireValue& answer) {
    const std::optional<WireValue> k = answer.Find("k");
    const WireArray array = k ? k->AsArray("'k'") : WireArray();
    ReadRows(answer, array.rank == 4 ? array.extents[2] : 0, rows);
  });
}

OpResult RemotePrefix::Close(int request, bool keep) {
  WireWriter& writer = BeginOf("close", request);
  writer.Key("keep");
  writer.Bool(keep);
  return Finish();
}

OpResult RemotePrefix::Fork(int request, int out) {
  PutNumberOf(BeginOf("fork", request), "out", out);
  return Finish();
}

OpResult RemotePrefix::TrimTo(int request, int64_t tokens) {
  PutNumberOf(BeginOf("trim_to", request), "tokens", tokens);
  return Finish();
}

OpResult RemotePrefix::Evict(int64_t tokens) {
  PutNumberOf(process_->Begin("evict"), "tokens", tokens);
  return Finish();
}

OpResult RemotePrefix::Clear() {
  process_->Begin("clear");
  return Finish();
}

OpResult RemotePrefix::Epoch() {
  process_->Begin("epoch");
  return Finish();
}

OpResult RemotePrefix::Settle() {
  process_->Begin("settle");
  return Finish();
}

OpResult RemotePrefix::Save(int key) {
  PutTextOf(process_->Begin("save"), "key", fmt::format("s{}", key));
  return Finish();
}

OpResult RemotePrefix::Load(int key) {
  PutTextOf(process_->Begin("load"), "key", fmt::format("s{}", key));
  return Finish();
}

bool RemotePrefix::KillAtWrite(int64_t write) {
  kill_at_ = write;
  return true;
}

void RemotePrefix::Observe(PrefixCounters* counters) {
  process_->Begin("observe");
  Finish([&](const WireValue& answer) {
    for (const auto& [key, member] : PrefixCounterFields()) {
      const std::optional<WireValue> value = answer.Find(key);
      if (value) counters->*member = value->AsInteger(fmt::format("'{}'", key));
    }
  });
}

}  // namespace kvcheck
