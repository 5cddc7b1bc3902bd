"""The names of months and weekdays in forty languages: the words that a written date is made of.

Facts of the Unicode CLDR (format and stand-alone, wide and abbreviated), lower case, in NFC; month names of the
Solar Hijri and Hijri calendars and of the Levant are added by hand. Names of two words are in the clock grammar.
"""

# ruff: noqa: SIM905

from __future__ import annotations

MONTHS = frozenset(
    """
    abe abendua abr abril abu abuztua ago agost agosto agu agustus août api apirila apr aprel april aprile aprilie
    aprill apríl apríla aprīlis ara aralık aug august augusta augusti augusts augustus augusztus avg avgust avq
    avqust avr avril aza azaroa ağu ağustos bal balandis balandžio birž birželio birželis bře březen března cze
    czerwca czerwiec d'abr d'abril d'ag d'agost d'oct d'octubre dec december decembra decembrie decembris dek dekabr
    des desember desembre dets detsember dez dezember dezembro dhj dhjetor dic dicembre diciembre dub duben dubna
    déc décembre eka ekaina eki ekim elo elokuu elokuuta ene enero eyl eylül feb febbraio febr febrer febrero
    februar februari februarie february február februára februāris fev fevereiro fevral févr février geg gegužė
    gegužės gen gener gennaio giu giugno gru grudnia grudzień gruod gruodis gruodžio gush gusht haz haziran heinä
    heinäkuu heinäkuuta helmi helmikuu helmikuuta huhti huhtikuu huhtikuuta ian ianuarie ira iraila iul iulie iun
    iunie iyl iyn iyul iyun jaan jaanuar jan janar janeiro januar januari january január januára janv janvier
    janvāris joulu joulukuu joulukuuta juil juill juillet juin jul julho juli julij julio juliol july jun june junho
    juni junij junio juny juuli juuni júl júla július jún júna június jūl jūlijs jūn jūnijs kas kasım kesä kesäkuu
    kesäkuuta kol kolovoz kolovoza korr korrik kov kovas kovo kvě květen května kwi kwiecień kwietnia lapkr
    lapkritis lapkričio led leden ledna liep liepa liepos lip lipanj lipca lipiec lipnja lis listopad listopada
    listopadu loka lokakuu lokakuuta lug luglio lut lutego luty maalis maaliskuu maaliskuuta maart mag maggio mai
    maiatza maig maijs maio maj maja mar marca march marec maret marras marraskuu marraskuuta mars mart martie marts
    martxoa marzec marzo març março may mayo mayıs mei mrt máj mája május márc március mär märts märz nis nisan
    noiembrie nov november novembra novembre novembris novembro noviembre noy noyabr nën nëntor oca ocak oct october
    octobre octombrie octubre okt oktober oktobris oktoober oktyabr október októbra ots otsaila ott ottobre out
    outubro ožu ožujak ožujka paź październik października pri prill pro prosinac prosinca prosince prosinec qer
    qershor rugp rugpjūtis rugpjūčio rugs rugsėjis rugsėjo ruj rujan rujna saus sausio sausis sen sentyabr sep sept
    september septembra septembre septembrie septembris septiembre set setembre setembro settembre shk shkurt sht
    shtator sie sierpień sierpnia sij siječanj siječnja spal spalio spalis srp srpanj srpen srpna srpnja stu studeni
    studenoga sty styczeń stycznia svi svibanj svibnja syys syyskuu syyskuuta szept szeptember tammi tammikuu
    tammikuuta tem temmuz tet tetor touko toukokuu toukokuuta tra travanj travnja urr urria urt urtarrila uzt
    uztaila vas vasario vasaris veebr veebruar velj veljača veljače wrz wrzesień września yan yanvar zář září ápr
    április úno únor února červen července červenec června čvc čvn říj říjen října şub şubat απρ απρίλιος απριλίου
    αυγ αυγούστου αύγ αύγουστος δεκ δεκέμβριος δεκεμβρίου ιαν ιανουάριος ιανουαρίου ιουλ ιουλίου ιουν ιουνίου ιούλ
    ιούλιος ιούν ιούνιος μάι μάιος μάρ μάρτιος μαΐ μαΐου μαρ μαρτίου νοέ νοέμβριος νοε νοεμβρίου οκτ οκτωβρίου
    οκτώβριος σεπ σεπτέμβριος σεπτεμβρίου φεβ φεβρουάριος φεβρουαρίου авг август августа апр апрель апреля април бер
    березень березня вер верасень верасня вересень вересня груд грудень грудня дек декабрь декабря декември дец
    децембар жні жнівень жніўня жовт жовтень жовтня июл июль июля июн июнь июня кас кастрычнік кастрычніка квіт
    квітень квітня кра красавік красавіка лип липень липня лист листопад листопада лют лютага лютий лютого люты ліп
    ліпень ліпеня ліс лістапад лістапада май мар март марта мая мај нов новембар ное ноември нояб ноябрь ноября окт
    октобар октомври октябрь октября сак сакавік сакавіка сент сентябрь сентября сеп септембар септември серп
    серпень серпня сне снежань снежня сту студзень студзеня січ січень січня трав травень травня феб фебруар фев
    февр февраль февраля февруари черв червень червня чэр чэрвень чэрвеня юли юни янв январь января яну януари јан
    јануар јул јун אוגוסט אוג׳ אוקטובר אוק׳ אפריל אפר׳ באוגוסט באוג׳ באוקטובר באוק׳ באפריל באפר׳ בדצמבר בדצמ׳ ביולי
    ביוני בינואר בינו׳ במאי במרץ בנובמבר בנוב׳ בספטמבר בספט׳ בפברואר בפבר׳ דצמבר דצמ׳ יולי יוני ינואר ינו׳ מאי מרץ
    נובמבר נוב׳ ספטמבר ספט׳ פברואר פבר׳ آب آبان آذار آذر آوریل أبريل أغسطس أكتوبر أيار أيلول اردیبهشت اسفند امرداد
    اوت اپریل اکتبر اکتوبر اگست بهمن تموز تیر جنوری جولائی جون حزيران خرداد دسامبر دسمبر ديسمبر دی رجب رمضان سبتمبر
    ستمبر سپتامبر شباط شعبان شهریور شوال صفر فبراير فروردین فروری فوریه مئی مارس مارچ مايو محرم مرداد مهر نوامبر
    نوفمبر نومبر نيسان يناير يوليو يونيو ژانویه ژوئن ژوئیه अक्टूबर अक्टू॰ अगस्त अग॰ अप्रैल एप्रि एप्रिल ऑक्टो
    ऑक्टोबर ऑगस्ट जनवरी जन॰ जाने जानेवारी जुलाई जुलै जुल॰ जून डिसें डिसेंबर दिसंबर दिस॰ नवंबर नव॰ नोव्हें नोव्हेंबर
    फ़रवरी फ़र॰ फेब्रु फेब्रुवारी मार्च सप्टें सप्टेंबर सितंबर सित॰ অক্টো অক্টোবর আগস্ট এপ্রি এপ্রিল জানু জানুয়ারি
    জুন জুল জুলাই ডিসে ডিসেম্বর নভে নভেম্বর ফেব ফেব্রুয়ারি মার্চ সেপ সেপ্ট সেপ্টেম্বর ก.ค ก.พ ก.ย กรกฎาคม กันยายน
    กุมภาพันธ์ ต.ค ตุลาคม ธ.ค ธันวาคม พ.ค พ.ย พฤศจิกายน พฤษภาคม ม.ค มกราคม มิ.ย มิถุนายน มี.ค มีนาคม ส.ค สิงหาคม
    เม.ย เมษายน აგვ აგვისტო აპრ აპრილი დეკ დეკემბერი თებ თებერვალი იან იანვარი ივლ ივლისი ივნ ივნისი მაი მაისი მარ
    მარტი ნოე ნოემბერი ოქტ ოქტომბერი სექ სექტემბერი
    """.split()
)
"""Month names; Hebrew ones with and without the preposition that is written onto them."""

WEEKDAYS = frozenset(
    """
    antradienis asteartea asteazkena astelehena b.e bazar c.a ceturtd ceturtdiena cmt csütörtök cum cuma cumartesi
    czw czwartek cümə di die dienstag dijous dilluns dim dimanche dimarts dimecres dinsdag dissabte diumenge
    divendres do dom domenica domingo donderdag donnerstag dum duminică enj esmaspäev fr fre fredag freitag fri
    friday gio giovedì hétfő hën igandea jeu jeudi joi jue jueves jum jumat kam kamis kedd keskiviikko keskiviikkona
    ketvirtadienis kolmapäev larunbata lauantai lauantaina laupäev lun lundi lunedì lunes luni lör lördag lør lørdag
    ma maanantai maanantaina maandag man mandag mar mardi martedì martes marți mer mercoledì mercredi mi mie
    miercuri min minggu mittwoch mié miércoles mo mon monday montag mån måndag mër ned nedelja nedeľa nedjelja
    neděle neljapäev niedz niedziela ons onsdag osteguna ostirala otrd otrdiena paz pazar pazartesi penktadienis per
    perjantai perjantaina perşembe pet petak petek piatok piektd piektdiena pirmadienis pirmd pirmdiena piątek pon
    pondelok pondělí ponedeljek ponedjeljak poniedziałek pre pzt pátek péntek pühapäev qua quarta-feira qui
    quinta-feira rab rabu reede sa sab sabato sabtu sal salı sam samedi samstag sat saturday seg segunda-feira
    sekmadienis sel selasa sen senin sestd sestdiena sex sexta-feira sht so sob sobota sonntag sre sreda sri srijeda
    streda středa sub subota sun sunday sunnuntai sunnuntaina svētd svētdiena sze szerda szo szombat sáb sábado sâm
    sâmbătă sön söndag søn søndag teisipäev ter terça-feira thu thursday tiistai tiistaina tir tirs tirsdag tis
    tisdag tor torek tors torsdag torstai torstaina trečiadienis trešd trešdiena tue tuesday uto utorak utorok
    vasárnap ven vendredi venerdì vie viernes vin vineri vr vrijdag wed wednesday wo woensdag wtorek za zaterdag zo
    zondag ç.a çar çarşamba çərşənbə úterý čet četrtek četvrtak čtvrtek środa şənbə šeštadienis štvrtok δευ δευτέρα
    κυρ κυριακή πέμ πέμπτη παρ παρασκευή σάβ σάββατο τετ τετάρτη τρί τρίτη аўторак воскресенье вс вт вторник
    вівторок нд нед неделя недеља неділя нядзеля пʼятниця панядзелак пет петак петък пн пон понеделник понедельник
    понедељак понеділок пт пятница пятніца сб серада середа ср сре среда сряда суб суббота субота събота уто уторак
    чацвер чет четвер четверг четвртак четвъртък чт חמישי ראשון רביעי שבת שישי שלישי שני اتوار الأحد الأربعاء
    الإثنين الاثنين الثلاثاء الجمعة الخميس السبت بدھ جمعرات جمعه جمعہ دوشنبه سه‌شنبه شنبه منگل پنجشنبه پیر چهارشنبه
    ہفتہ یکشنبه गुरु गुरुवार बुध बुधवार मंगल मंगलवार मंगळ मंगळवार रवि रविवार शनि शनिवार शुक्र शुक्रवार सोम सोमवार
    বুধ বুধবার বৃহস্পতি বৃহস্পতিবার মঙ্গল মঙ্গলবার রবি রবিবার শনি শনিবার শুক্র শুক্রবার সোম সোমবার จันทร์ จันทร์ที่
    พฤหัส พฤหัสที่ พุธ วันจันทร์ วันจันทร์ที่ วันพฤหัสบดี วันพฤหัสบดีที่ วันพุธ วันพุธที่ วันศุกร์ วันศุกร์ที่
    วันอังคาร วันอังคารที่ วันอาทิตย์ วันอาทิตย์ที่ วันเสาร์ วันเสาร์ที่ ศุกร์ ศุกร์ที่ อังคาร อังคารที่ อาทิตย์
    อาทิตย์ที่ เสาร์ เสาร์ที่ კვი კვირა ოთხ ოთხშაბათი ორშ ორშაბათი პარ პარასკევი სამ სამშაბათი შაბ შაბათი ხუთ
    ხუთშაბათი
    """.split()
)
"""Weekday names; Thai ones with and without the word that links them to the day's number."""
