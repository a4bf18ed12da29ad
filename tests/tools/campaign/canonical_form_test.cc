// Canonical forms: what does not matter to a cause does not show in them, what does, does.

#include "tools/campaign/canonical_form.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "reference/spec/case.h"

namespace kvcheck {
namespace {

std::string FormOf(const std::string& text) { return CanonicalForm(ParseCase(text)); }

TEST(CanonicalForm, ReadsAsWhatHappened) {
  EXPECT_EQ(FormOf("cache layout=ring:w=4:keep=2 k=f32 dk=8 data=tokens:1; new A; append A 4; "
                   "append A 1 wrong=heads"),
            "new A ring:keep plain; append A n; append A 1 heads");
  EXPECT_EQ(
      FormOf("cache k=f32 hkv=2 hq=4 dk=8 data=tokens:1; new B rows=2 pad=1,0; prepare B 2,1; "
             "save B s4; damage s4 flip at=3; load s4 -> C; attend C window=3 sinks"),
      "heads grouped; new A linear plain rows=n padded; prepare A ragged; save A s0; damage s0 "
      "flip; load B s0; attend B window sinks");
  EXPECT_EQ(FormOf("attention hq=2 hkv=1 l=1 t=9 d=32 q=f32 k=affine:8:g32:f32 v=affine:8:g32:f32 "
                   "out=f32 mask=bool:BHLT data=gauss:1"),
            "attention q=1 t=n grouped affine:8 bool:BHLT");
  EXPECT_EQ(FormOf("codec op=encode format=affine:3:g32:bf16 x=f32 rows=7 d=96 data=mixed:3"),
            "codec encode affine:3 rows=n");
}

TEST(CanonicalForm, DoesNotShowWhatDoesNotMatter) {
  const std::vector<std::string> same = {
      "cache layout=ring:w=4 k=f32 dk=8 data=tokens:1; new A; append A 3; new B rows=2; append B "
      "2; "
      "extend B A",
      // Names, numbers, types, seeds, growth, and when it is looked.
      "cache layout=ring:w=9 k=bf16 x=bf16 dk=8 growth=3 observe=last data=tokens:7; new D; append "
      "D "
      "8; new C rows=5; append C 4; extend C D",
      // Fewer channels than the plainest case has.
      "cache layout=ring:w=4 k=f32 dk=3 dv=8 data=tokens:1; new A; append A 3; new B rows=2; "
      "append "
      "B 2; extend B A",
      // The layout of one `new` in place of the setup's.
      "cache k=f32 dk=8 data=tokens:1; new A layout=ring:w=2; append A 3; new B layout=ring:w=3 "
      "rows=2; append B 2; extend B A",
      // Operations of different slots in another order.
      "cache layout=ring:w=4 k=f32 dk=8 data=tokens:1; new B rows=2; new A; append B 2; append A "
      "3; "
      "extend B A",
  };
  for (const std::string& text : same) EXPECT_EQ(FormOf(text), FormOf(same[0])) << text;
}

TEST(CanonicalForm, ShowsWhatDoesMatter) {
  const std::string setup = "cache layout=ring:w=4 k=f32 dk=8 data=tokens:1; ";
  const std::vector<std::string> different = {
      setup + "new A; append A 2",
      setup + "new A; append A 1",
      setup + "new A rows=0; append A 2",
      setup + "new A rows=2; append A 2",
      setup + "new A rows=2 pad=1,0; append A 2",
      setup + "new A; append A 1; append A 2",
      setup + "new A; append A 2; append A 1",
      setup + "new A; append A 2; trim A 0",
      setup + "new A; append A 2; trim A 1",
      setup + "new A; append A 2; trim A -1",
      setup + "new A rows=2; append A 2; filter A",
      setup + "new A rows=2; append A 2; filter A 0",
      setup + "new A rows=2; append A 2; filter A 0,1",
      setup + "new A rows=2; append A 2; filter A 1,0",
      setup + "new A rows=2; append A 2; filter A 0,0",
      setup + "new A rows=2; append A 2; filter A 2",
      setup + "new A rows=2; append A 2; extract A 1 -> B",
      setup + "new A rows=2; append A 2; extract A 2 -> B",
      "cache layout=chunk:c=4 k=f32 dk=8 data=tokens:1; new A; append A 2",
      "cache layout=linear:w=4 k=f32 dk=8 data=tokens:1; new A; append A 2",
      "cache layout=linear k=affine:4:g32:f32 dk=32 data=tokens:1; new A; append A 2",
      "cache layout=linear k=affine:6:g32:f32 dk=32 data=tokens:1; new A; append A 2",
      "cache layout=linear k=affine:6:g32:f32 dk=64 data=tokens:1; new A; append A 2",
  };
  std::set<std::string> forms;
  for (const std::string& text : different) EXPECT_TRUE(forms.insert(FormOf(text)).second) << text;
}

TEST(CanonicalForm, NamesWhateverIsWrongWithColumns) {
  for (const std::string wrong :
       {"rows", "heads", "k_dim", "v_dim", "type", "fewer_rows", "fewer_heads", "fewer_v"}) {
    EXPECT_EQ(
        FormOf("cache k=f32 dk=8 data=tokens:1; new A; append A 2; append A 1 wrong=" + wrong),
        "new A linear plain; append A n; append A 1 " + wrong);
  }
}

TEST(CanonicalForm, TraitsTellCasesApartBeforeTheyAreShrunk) {
  const auto traits = [](const std::string& text, int64_t step) {
    return TraitsOf(ParseCase(text), step);
  };
  const std::string known =
      "cache layout=ring:w=4 k=f32 dk=8 data=tokens:1; new A; append A 2; trim A 1; append A 1";
  const std::string drawn =
      "cache k=f32 dk=8 data=tokens:1; new B; append B 1; new A layout=ring:w=9; append A 5; trim "
      "A "
      "2; copy A -> C; append C 1; new D rows=2; append D 1";
  EXPECT_EQ(traits(drawn, 6).group, "ring plain");
  EXPECT_EQ(traits(drawn, 8).group, "linear plain batch");
  EXPECT_EQ(traits(drawn, -1), traits(drawn, 8));
  EXPECT_TRUE(MayShrinkTo(traits(drawn, 6), traits(known, -1)));
  // Before the trim, and of another cache.
  EXPECT_FALSE(MayShrinkTo(traits(drawn, 3), traits(known, -1)));
  EXPECT_FALSE(MayShrinkTo(traits(drawn, 8), traits(known, -1)));
}

}  // namespace
}  // namespace kvcheck
