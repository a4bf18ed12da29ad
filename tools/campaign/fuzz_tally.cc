#include "tools/campaign/fuzz_tally.h"

#include <algorithm>

#include "reference/spec/error.h"
#include "tools/process/message_codec.h"

namespace kvcheck {
namespace {

// Probes and ways to fail of one campaign; a damaged message must not allocate without end.
constexpr int64_t kMostEntries = 100'000;

// Group by group the first cases of both: however a stretch of cases is cut, these are the same.
void JoinGroups(const FailureSum& later, FailureSum* sum) {
  for (const FailureGroup& group : later.groups) {
    auto same = std::find_if(sum->groups.begin(), sum->groups.end(),
                             [&](const FailureGroup& known) { return known.name == group.name; });
    if (same == sum->groups.end()) {
      sum->groups.push_back(group);
      continue;
    }
    const size_t room = kGroupCases - std::min(kGroupCases, same->cases.size());
    const size_t taken = std::min(room, group.cases.size());
    same->cases.insert(same->cases.end(), group.cases.begin(),
                       group.cases.begin() + static_cast<std::ptrdiff_t>(taken));
  }
}
void JoinGroups(const ReasonSum&, ReasonSum*) {}

template <typename Sum>
void Join(const Sum& later, std::vector<Sum>* sums) {
  const auto same = std::find_if(sums->begin(), sums->end(), [&](const Sum& sum) {
    return sum.outcome == later.outcome && sum.signature == later.signature;
  });
  if (same == sums->end()) {
    sums->push_back(later);
  } else {
    same->cases += later.cases;
    JoinGroups(later, &*same);
  }
}

void Encode(const FailureSum& sum, MessageEncoder* encoder) {
  encoder->Integer(static_cast<int64_t>(sum.groups.size()));
  for (const FailureGroup& group : sum.groups) {
    encoder->Text(group.name);
    encoder->Integer(static_cast<int64_t>(group.cases.size()));
    for (const int64_t index : group.cases) encoder->Integer(index);
  }
}
void Encode(const ReasonSum&, MessageEncoder*) {}

template <typename Sum>
void Encode(const std::vector<Sum>& sums, MessageEncoder* encoder) {
  encoder->Integer(static_cast<int64_t>(sums.size()));
  for (const Sum& sum : sums) {
    encoder->Byte(static_cast<char>(sum.outcome));
    encoder->Text(sum.signature);
    encoder->Text(sum.reason);
    encoder->Integer(sum.first_case);
    encoder->Integer(sum.cases);
    Encode(sum, encoder);
  }
}

int64_t Size(MessageDecoder* decoder) {
  const int64_t size = decoder->Integer();
  if (size < 0 || size > kMostEntries) {
    throw Error(ErrorCode::kUnreadableFile, "a message of too many entries");
  }
  return size;
}

void Decode(MessageDecoder* decoder, FailureSum* sum) {
  const int64_t groups = Size(decoder);
  for (int64_t i = 0; i < groups; ++i) {
    FailureGroup group;
    group.name = decoder->Text();
    group.cases.resize(static_cast<size_t>(Size(decoder)));
    for (int64_t& index : group.cases) index = decoder->Integer();
    sum->groups.push_back(std::move(group));
  }
}
void Decode(MessageDecoder*, ReasonSum*) {}

template <typename Sum>
void Decode(MessageDecoder* decoder, std::vector<Sum>* sums) {
  const int64_t size = Size(decoder);
  for (int64_t i = 0; i < size; ++i) {
    Sum sum;
    const char outcome = decoder->Byte();
    if (outcome < 0 || outcome > static_cast<char>(Outcome::kTimedOut)) {
      throw Error(ErrorCode::kUnreadableFile, "a message with an outcome that does not exist");
    }
    sum.outcome = static_cast<Outcome>(outcome);
    sum.signature = decoder->Text();
    sum.reason = decoder->Text();
    sum.first_case = decoder->Integer();
    sum.cases = decoder->Integer();
    Decode(decoder, &sum);
    sums->push_back(std::move(sum));
  }
}

// Fields that are one number each.
constexpr int64_t FuzzTally::* kNumbers[] = {
    &FuzzTally::cases,     &FuzzTally::passed,     &FuzzTally::failed,  &FuzzTally::crashed,
    &FuzzTally::timed_out, &FuzzTally::mistrusted, &FuzzTally::by_data, &FuzzTally::unsupported};
constexpr int64_t CaseCounts::* kCounts[] = {&CaseCounts::operations, &CaseCounts::states,
                                             &CaseCounts::elements};
constexpr std::vector<int64_t> CaseCounts::* kLists[] = {&CaseCounts::probes,
                                                         &CaseCounts::declined};

}  // namespace

void FuzzTally::Add(int64_t index, const JudgedCase& judged) {
  ++cases;
  switch (judged.outcome) {
    case Outcome::kPass:
      ++passed;
      return;
    case Outcome::kMistrusted:
    case Outcome::kUnsupported:
    case Outcome::kIllegalCase:
      ++(judged.outcome == Outcome::kMistrusted ? mistrusted : unsupported);
      if (judged.outcome == Outcome::kMistrusted && judged.by_data) ++by_data;
      Join(ReasonSum{judged.outcome, judged.signature, judged.reason, index, 1}, &unproved);
      return;
    case Outcome::kFail:
    case Outcome::kCrashed:
    case Outcome::kTimedOut:
      break;
  }
  ++failed;
  if (judged.outcome == Outcome::kCrashed) ++crashed;
  if (judged.outcome == Outcome::kTimedOut) ++timed_out;
  FailureSum sum = {judged.outcome, judged.signature, judged.reason, index, 1};
  if (!judged.group.empty()) sum.groups = {{judged.group, {index}}};
  Join(sum, &failures);
}

void FuzzTally::Add(const FuzzTally& later) {
  for (const auto number : kNumbers) this->*number += later.*number;
  counts.Add(later.counts);
  for (const FailureSum& sum : later.failures) Join(sum, &failures);
  for (const ReasonSum& sum : later.unproved) Join(sum, &unproved);
}

Message Encode(const FuzzTally& tally) {
  MessageEncoder encoder;
  for (const auto number : kNumbers) encoder.Integer(tally.*number);
  for (const auto count : kCounts) encoder.Integer(tally.counts.*count);
  for (const auto list : kLists) {
    encoder.Integer(static_cast<int64_t>((tally.counts.*list).size()));
    for (const int64_t count : tally.counts.*list) encoder.Integer(count);
  }
  Encode(tally.failures, &encoder);
  Encode(tally.unproved, &encoder);
  return encoder.message();
}

FuzzTally DecodeTally(const Message& message) {
  MessageDecoder decoder(message);
  FuzzTally tally;
  for (const auto number : kNumbers) tally.*number = decoder.Integer();
  for (const auto count : kCounts) tally.counts.*count = decoder.Integer();
  for (const auto list : kLists) {
    (tally.counts.*list).resize(static_cast<size_t>(Size(&decoder)));
    for (int64_t& count : tally.counts.*list) count = decoder.Integer();
  }
  Decode(&decoder, &tally.failures);
  Decode(&decoder, &tally.unproved);
  decoder.ExpectEnd();
  return tally;
}

}  // namespace kvcheck
