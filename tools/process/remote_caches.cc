#include "tools/process/remote_caches.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference/spec/error.h"
#include "tools/process/remote_cache_object.h"

namespace kvcheck {
namespace {

// Texts of plans and profiles that are kept parsed: a process could send another one each time.
constexpr size_t kMostTexts = 64;

template <typename T, typename F>
const T* ParsedText(const WireValue& answer, std::string_view key,
                    std::map<std::string, T, std::less<>>* known, F parse) {
  const std::optional<WireValue> value = answer.Find(key);
  if (!value) return nullptr;
  const std::string_view text = value->AsText(key);
  const auto found = known->find(text);
  if (found != known->end()) return &found->second;
  if (known->size() >= kMostTexts) known->clear();
  try {
    return &known->emplace(std::string(text), parse(text)).first->second;
  } catch (const Error& error) {
    throw WireError(
        fmt::format("'{}' is '{}': {}", key, CleanText(text, 100), CleanText(error.message())));
  }
}

}  // namespace

const Plan* RemoteCaches::PlanOf(const WireValue& answer) {
  return ParsedText(answer, "plan", &plans_, ParsePlan);
}

const Profile* RemoteCaches::ProfileOf(const WireValue& answer) {
  return ParsedText(answer, "profile", &profiles_, ParseProfile);
}

OpResult RemoteCaches::Start(const CacheSetup& setup) {
  ++generation_;
  next_number_ = 0;
  dropped_.clear();
  saved.clear();
  store_.Clear();
  setup_ = setup;
  WireWriter& writer = process_->Begin("start");
  writer.Key("setup");
  writer.StartMap();
  const auto number = [&](std::string_view key, int64_t value) {
    writer.Key(key);
    writer.Integer(value);
  };
  number("kv_heads", setup.kv_heads);
  number("query_heads", setup.query_heads);
  number("k_dim", setup.k_dim);
  number("v_dim", setup.v_dim);
  writer.Key("x");
  writer.Text(ShortName(setup.x));
  number("growth_tokens", setup.growth_tokens);
  writer.EndMap();
  writer.Key("seed");
  writer.Unsigned(setup.data.seed);
  if (rehearses_) {
    Announce();
    return {};
  }
  const WireValue answer = process_->Call();
  return process_->Interpret([&] { return StatusOf(answer); });
}

void RemoteCaches::BeginRehearsal() {
  process_->BeginAhead();
  rehearses_ = takes_more_ = true;
}

WireWriter& RemoteCaches::Begin(std::string_view request) {
  WireWriter& writer = process_->Begin(request);
  if (!dropped_.empty()) {
    writer.Key("drop");
    writer.Integers(dropped_);
  }
  return writer;
}

void RemoteCaches::SendObserve(std::span<const RemoteCache* const> caches,
                               const RemoteCache* made) {
  if (hint == ObserveHint::kNothing || caches.size() + (made == nullptr ? 0 : 1) == 0) return;
  WireWriter& writer = process_->writer();
  writer.Key("observe");
  writer.StartArray(caches.size() + (made == nullptr ? 0 : 1));
  for (const RemoteCache* cache : caches) writer.Integer(cache->number());
  if (made != nullptr) writer.Integer(made->number());
}

bool RemoteCaches::FitsFrame() {
  const int64_t size = process_->writer().size();
  if (size <= kMaxFrameBytes) return true;
  message_ =
      fmt::format("the request has {} bytes, and a frame of the process protocol has {} at most",
                  size, kMaxFrameBytes);
  return false;
}

namespace {

Misfit MisfitOf(const WireValue& answer) {
  const std::optional<WireValue> said = answer.Find("misfit");
  if (!said) return Misfit::kNone;
  const std::string_view what = said->AsText("'misfit'");
  if (what == "mask") return Misfit::kMask;
  if (what == "k and v") return Misfit::kKeysAndValues;
  throw WireError(fmt::format("'misfit' is {}: it is 'mask' or 'k and v'", CleanText(what)));
}

}  // namespace

OpResult RemoteCaches::StatusOf(const WireValue& answer) {
  if (const std::optional<WireValue> refused = answer.Find("refused")) {
    message_ = CleanText(refused->AsText("'refused'"));
    return OpResult::Refuse(message_, MisfitOf(answer));
  }
  if (const std::optional<WireValue> unsupported = answer.Find("unsupported")) {
    message_ = CleanText(unsupported->AsText("'unsupported'"));
    return OpResult::Unsupported(message_);
  }
  return {};
}

void RemoteCaches::ReadStates(const WireValue& answer, std::span<const RemoteCache* const> caches,
                              const RemoteCache* made, bool ask_made) {
  const int64_t call = process_->calls();
  for (const RemoteCache* cache : caches) cache->Named(call);
  if (made != nullptr) made->Named(call);
  const size_t asked = caches.size() + (ask_made ? 1 : 0);
  if (hint == ObserveHint::kNothing || asked == 0) return;
  const std::vector<WireValue> states = answer.Get("states").Entries("'states'");
  if (states.size() != asked) {
    throw WireError(
        fmt::format("{} states were asked for, the answer has {}", asked, states.size()));
  }
  for (size_t i = 0; i < caches.size(); ++i) {
    caches[i]->TakeState(states[i], process_->answer_bytes(), call);
  }
  if (made != nullptr) made->TakeState(states.back(), process_->answer_bytes(), call);
}

void RemoteCaches::ExpectStates(std::span<const RemoteCache* const> caches, const RemoteCache* made,
                                bool ask_made) {
  const int64_t call = process_->calls();
  const bool told = hint != ObserveHint::kNothing && caches.size() + (ask_made ? 1 : 0) > 0;
  const auto expect = [&](const RemoteCache* cache) {
    cache->Named(call);
    if (told) cache->ExpectState(call);
  };
  std::for_each(caches.begin(), caches.end(), expect);
  if (made != nullptr) expect(made);
}

void RemoteCaches::Observe(std::span<const RemoteCache* const> caches) {
  WireWriter& writer = Begin("observe");
  writer.Key("observe");
  writer.StartArray(caches.size());
  for (const RemoteCache* cache : caches) writer.Integer(cache->number());
  if (rehearses_) {
    Announce();
    for (const RemoteCache* cache : caches) cache->ExpectState(process_->calls());
    return;
  }
  const WireValue answer = process_->Call();
  dropped_.clear();
  process_->Interpret([&] {
    if (!StatusOf(answer).ok()) {
      throw WireError(fmt::format("to show a state was declined: {}", message_));
    }
    const std::vector<WireValue> states = answer.Get("states").Entries("'states'");
    if (states.size() != caches.size()) {
      throw WireError(
          fmt::format("{} states were asked for, the answer has {}", caches.size(), states.size()));
    }
    for (size_t i = 0; i < caches.size(); ++i) {
      caches[i]->TakeState(states[i], process_->answer_bytes(), process_->calls());
    }
  });
}

OpResult RemoteCaches::Store::Damage(std::string_view key, const CacheOp& op) {
  constexpr std::string_view kHow[] = {"truncate", "flip", "foreign", "version"};
  WireWriter& writer = caches_->Begin("damage");
  writer.Key("key");
  writer.Text(key);
  writer.Key("how");
  writer.Text(kHow[static_cast<size_t>(op.damage)]);
  writer.Key("at");
  writer.Integer(op.at);
  return caches_->Finish({}, nullptr, [&](const WireValue* answer) {
    if (answer != nullptr && answer->Get("as_put").AsBool("'as_put'")) {
      Saved(key);
    } else {
      damaged_.emplace(std::string(key), true);
    }
  });
}

void RemoteCaches::Store::Saved(std::string_view key) {
  if (const auto found = damaged_.find(key); found != damaged_.end()) damaged_.erase(found);
}

}  // namespace kvcheck
