// The table of implementations: what names, defaults and messages are made of.

#include "tools/corridor/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "reference/cache/model_cache.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation_loss.h"
#include "tools/corridor/case_judges.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/implementations.h"
#include "tools/faults/fault_table.h"

namespace kvcheck {
namespace {

constexpr CaseKind kAsked[] = {CaseKind::kCodec, CaseKind::kAttention, CaseKind::kCache,
                               CaseKind::kPrefix};

std::string MessageOf(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    return std::string(error.message());
  }
  return "";
}

TEST(Registry, EveryRowSaysWhatItIsAndHasAKind) {
  std::set<std::string> names;
  for (const ImplementationRow& row : ImplementationRows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_TRUE(std::any_of(std::begin(kAsked), std::end(kAsked), [&](CaseKind kind) {
      return row.Has(kind);
    })) << row.name;
    EXPECT_NE(ImplementationsHelp().find(row.Shown() + " ("), std::string::npos) << row.name;
  }
}

// A row that needs no parameter is made for each of its kinds, and says so itself.
TEST(Registry, MakesWhatItsRowsPromise) {
  int made = 0;
  for (const ImplementationRow& row : ImplementationRows()) {
    if (!row.parameter.empty()) continue;
    for (const CaseKind kind : kAsked) {
      EXPECT_EQ(HasAnswerer(kind, row.name), row.Has(kind)) << row.name << " " << Name(kind);
      if (!row.Has(kind)) continue;
      ++made;
      const Answerer answerer = FindAnswerer(kind, row.name);
      EXPECT_EQ(answerer.name, row.name);
      EXPECT_FALSE(answerer.version.empty()) << row.name;
      EXPECT_FALSE(answerer.foreign) << row.name;
      if (!HasTensors(kind)) continue;
      const auto kinds =
          MakeImplementation(kind, row.name, ParsePlan(kStrangerPlan), {})->GetCapabilities().kinds;
      EXPECT_NE(std::find(kinds.begin(), kinds.end(), Name(kind)), kinds.end()) << row.name;
    }
  }
  EXPECT_GE(made, 8);
}

TEST(Registry, TheDefaultIsJudgedByValuesThatAreNotItsOwn) {
  for (const CaseKind kind : kAsked) {
    const std::string name = DefaultImplementation(kind);
    EXPECT_TRUE(FindImplementation(name)->checks_itself.empty()) << name;
    EXPECT_EQ(FindAnswerer(kind, "").name, name);
  }
  EXPECT_NE(MessageOf([] { DefaultImplementation(CaseKind::kTensor); }), "");
}

TEST(Registry, AMessageAboutAnUnknownNameHasAllNamesOfTheKind) {
  for (const CaseKind kind : kAsked) {
    const std::string listed = "known: " + ImplementationNames(kind) + "; adapters:";
    for (const std::string name : {"nobody", "optimised"}) {
      const std::string message = MessageOf([&] { FindAnswerer(kind, name); });
      EXPECT_NE(message.find(listed), std::string::npos) << message;
    }
    EXPECT_NE(MessageOf([&] { FindAnswerer(kind, "optimised"); }).find("did you mean"),
              std::string::npos);
  }
  const std::string message = MessageOf([] { FindAnswerer(CaseKind::kCodec, "model"); });
  EXPECT_NE(message.find("'model' is no implementation of cases of codec"), std::string::npos)
      << message;
}

TEST(Registry, StatesPlansOfThoseThatHaveOne) {
  EXPECT_NE(StatedBy(CaseKind::kAttention, "optimized").plan, "");
  EXPECT_NE(StatedBy(CaseKind::kAttention, "optimized:portable").plan,
            StatedBy(CaseKind::kAttention, "optimized").plan);
  EXPECT_NE(StatedBy(CaseKind::kAttention, "small_kernel").plan, "");
  EXPECT_EQ(StatedBy(CaseKind::kAttention, "simulated").plan, "");
  EXPECT_EQ(ParsePlan(StatedBy(CaseKind::kAttention, "simulated:base=plain_f32 p=bf16").plan),
            ParsePlan("base=plain_f32 p=bf16"));
  EXPECT_FALSE(StatedBy(CaseKind::kCodec, "optimized").profile == Profile{});
  EXPECT_TRUE(StatedBy(CaseKind::kCodec, "reference").profile == Profile{});
}

TEST(Registry, EveryFaultIsFoundUnderItsKindAlone) {
  for (const Fault& fault : AllFaults()) {
    for (const CaseKind kind : kAsked) {
      EXPECT_EQ(HasAnswerer(kind, FaultyName(fault)), Name(kind) == CaseKindOf(fault.kind))
          << fault.text->id << " " << Name(kind);
    }
  }
  EXPECT_NE(MessageOf([] { FindAnswerer(CaseKind::kCache, "fault:nothing"); }).find("known: "),
            std::string::npos);
}

TEST(Registry, WhoIsRegisteredIsListedFoundAndMade) {
  RegisterCacheImplementation("mine", [] { return std::make_unique<ModelFactory>(); });
  EXPECT_NE(ImplementationNames(CaseKind::kCache).find("mine"), std::string::npos);
  EXPECT_EQ(ImplementationNames(CaseKind::kCodec).find("mine"), std::string::npos);
  EXPECT_TRUE(HasAnswerer(CaseKind::kCache, "mine"));
  EXPECT_FALSE(HasAnswerer(CaseKind::kAttention, "mine"));
  EXPECT_NE(MakeCacheFactory("mine"), nullptr);
  const std::string message = MessageOf([] { FindAnswerer(CaseKind::kCache, "nobody"); });
  EXPECT_NE(message.find("mine"), std::string::npos) << message;
}

// Answers as it is told, without being known to whoever asks.
class Told : public Implementation {
 public:
  explicit Told(RunOutcome outcome) : outcome_(outcome) {}
  Capabilities GetCapabilities() const override { return {"told", "1", {"codec"}, {}, {}}; }
  RunOutcome Run(const Case&, const TensorMap&, Sink&) override { return outcome_; }
  std::string Reason() const override { return "it has 3 rows"; }

 private:
  RunOutcome outcome_;
};

class Lost : public Told {
 public:
  Lost() : Told(RunOutcome::kAnswered) {}
  RunOutcome Run(const Case&, const TensorMap&, Sink&) override {
    throw ImplementationLoss(LossKind::kTimedOut, "case", "no answer in 10 s");
  }
};

Question CodecQuestion() {
  Question question;
  question.c = ParseCase("codec op=encode format=f16 x=f32 rows=3 d=8 data=gauss:1");
  question.inputs = GenerateCaseInputs(question.c, {});
  return question;
}

TEST(Implementation, StatesRefusalsAndLossesItself) {
  Told refuses(RunOutcome::kRefused);
  std::string signature;
  Verdict verdict = AskAndJudge(refuses, "told", CodecQuestion(), {}, {}, &signature);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(signature, "codec refused: it has # rows");

  Told declines(RunOutcome::kUnsupported);
  signature.clear();
  verdict = AskAndJudge(declines, "told", CodecQuestion(), {}, {}, &signature);
  EXPECT_EQ(verdict.outcome, Outcome::kUnsupported);
  ASSERT_EQ(verdict.reasons.size(), 1U);
  EXPECT_EQ(verdict.reasons[0], "implementation 'told' declines this case: it has 3 rows");
  EXPECT_EQ(signature, "");

  Lost lost;
  verdict = AskAndJudge(lost, "told", CodecQuestion(), {}, {}, &signature);
  EXPECT_EQ(verdict.outcome, Outcome::kTimedOut);
  EXPECT_EQ(signature, "codec TIMED_OUT");
}

// Every kind that can be asked has a row wherever the corridor has a table of kinds.
TEST(CaseKinds, EveryKindThatIsAskedHasAnAnswererAndAJudge) {
  int asked = 0;
  for (size_t i = 0; i < kCaseKinds; ++i) {
    const CaseKind kind = KindAt(i);
    EXPECT_EQ(FindCaseKind(Name(kind)), kind);
    if (!IsAsked(kind)) {
      EXPECT_NE(MessageOf([&] { FindAnswerer(kind, "optimized"); }), "") << Name(kind);
      continue;
    }
    ++asked;
    EXPECT_NE(MakeCaseJudge(FindAnswerer(kind, ""), {}, std::chrono::seconds(1)), nullptr);
  }
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(FindCaseKind("codecs"), std::nullopt);
}

TEST(Cancel, StopsAnAnswerAndGivesSignsOfLife) {
  bool stop = false;
  int signs = 0;
  const Cancel cancel = Cancel([&] { return stop; }).WithSignOfLife([&] { ++signs; });
  const Question question = CodecQuestion();
  ReferenceCodec codec({});
  EXPECT_TRUE(Answer(codec, question, cancel));
  EXPECT_GT(signs, 0);
  stop = true;
  EXPECT_THROW(Answer(codec, question, cancel), Cancelled);
}

}  // namespace
}  // namespace kvcheck
